"""Export a fine-tuned model for transformers: written whole and compared, or not at all."""

import re
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from data_prep.shards.folders import complete_or_absent
from finetune.models.classifier_card import write_classifier_card
from finetune.models.classifier_format import write_classifier
from finetune.models.kept_model import KeptModel, KeptRecord
from pretrain.config.errors import ConfigError
from pretrain.convert.exports.in_transformers import (
    ExportCheck,
    check_tokenizer,
    compare_logits,
    quiet,
    sentence_rows,
)

MOST_ROUNDING = 0.01  # of the spread of the numbers that a model predicts
LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")


def export_classifier(kept: KeptModel, target: Path, licence: str | None = None) -> ExportCheck:
    """Write the folder whole and compared with the trainer's model, or not at all.

    Args:
        kept: the model.
        target: the folder.
        licence: see `write_classifier_card`.

    Raises:
        ConfigError: fp32 cannot hold the numbers that it predicts, the outputs of the export differ
            from the trainer's, or the Hub cannot have such a licence.
        ShardError: the target exists or cannot be written.
    """
    if licence is not None and not LICENCE.fullmatch(licence):
        raise ConfigError(
            f"--licence {licence}: give its name on the Hub, in small letters, such as apache-2.0"
        )
    _refuse_rounded_numbers(kept.record)
    with complete_or_absent(target) as partial:
        write_classifier(partial, kept)
        check = check_classifier(kept, partial)
        write_classifier_card(partial, kept, check, place=target, licence=licence)
    return check


def check_classifier(kept: KeptModel, folder: Path) -> ExportCheck:
    """Compare outputs and token ids of the export with the trainer's, in fp32.

    The difference is of logits, or of numbers in units of their spread.

    Raises:
        ConfigError: they differ.
    """
    record, text_encoder, restored = kept.record, kept.text_encoder, kept.restored()
    report = f"Report this with the fine_tuned.json of {record.describe()}"
    check_tokenizer(text_encoder, record.sequence_length, folder, fix=report)
    with quiet():
        model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)

    def outputs(ids_BS: Tensor, lengths_B: Tensor) -> Tensor:
        logits_BC: Tensor = restored(ids_BS, lengths_B)
        return logits_BC.double() * record.spread + record.centre

    batch = text_encoder.padded(sentence_rows(text_encoder, record.sequence_length))
    return compare_logits(model, outputs, batch, fix=report, of_tokens=False, unit=record.spread)


def _refuse_rounded_numbers(record: KeptRecord) -> None:
    if 4 * torch.finfo(torch.float32).eps * abs(record.centre) > MOST_ROUNDING * record.spread:
        raise ConfigError(
            f"{record.describe()} predicts numbers around {record.centre:g} with a spread of "
            f"{record.spread:g}, which the fp32 of exports rounds away; subtract a constant from "
            "the labels, and fine-tune again"
        )
