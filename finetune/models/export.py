"""Export a fine-tuned model for transformers: written whole and compared, or not at all."""

import re
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from data_prep.shards.folders import complete_or_absent
from finetune.models.classifier_card import write_classifier_card
from finetune.models.classifier_format import write_classifier
from finetune.models.kept_model import KeptModel, KeptRecord
from pretrain.config.errors import ConfigError
from pretrain.convert.exports.hf_check import (
    TOLERANCE,
    ExportCheck,
    compare_tokenizers,
    sentence_rows,
)
from pretrain.convert.in_transformers import quiet

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


@torch.no_grad()
def check_classifier(kept: KeptModel, folder: Path) -> ExportCheck:
    """Compare outputs and token ids of the export with the trainer's, in fp32.

    The difference is of logits, or of numbers in units of their spread.

    Raises:
        ConfigError: they differ.
    """
    record, text_encoder = kept.record, kept.text_encoder
    with quiet():
        model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        compare_tokenizers(text_encoder, record.sequence_length, tokenizer, name=record.describe())
    ids_BS, lengths_B = text_encoder.padded(sentence_rows(text_encoder, record.sequence_length))
    mask_BS = (torch.arange(ids_BS.shape[1]) < lengths_B[:, None]).long()
    theirs_BC = model.eval()(input_ids=ids_BS, attention_mask=mask_BS).logits
    ours_BC = kept.restored()(ids_BS, lengths_B).double() * record.spread + record.centre
    difference = ((theirs_BC - ours_BC).abs().max() / record.spread).item()
    most = TOLERANCE + _rounding(record)
    if not difference <= most:  # NaN too
        raise ConfigError(
            f"the outputs of the exported model differ from the trainer's: the largest difference "
            f"is {difference:.2g}, more than {most:.0e}; nothing was written. Report this "
            f"with the fine_tuned.json of {record.describe()}"
        )
    return ExportCheck(difference, theirs_BC.numel())


def _rounding(record: KeptRecord) -> float:
    """Return by how much fp32 rounds numbers beside their mean, in units of their spread."""
    return 4 * torch.finfo(torch.float32).eps * abs(record.centre) / record.spread


def _refuse_rounded_numbers(record: KeptRecord) -> None:
    if _rounding(record) > MOST_ROUNDING:
        raise ConfigError(
            f"{record.describe()} predicts numbers around {record.centre:g} with a spread of "
            f"{record.spread:g}, which the fp32 of exports rounds away; subtract a constant from "
            "the labels, and fine-tune again"
        )
