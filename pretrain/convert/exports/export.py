"""An encoder as a folder that transformers loads: written whole and compared, or not at all."""

from pathlib import Path

from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

from data_prep.shards.folders import complete_or_absent
from data_prep.shards.manifest import TOKENIZER_FILE
from data_prep.text.text_encoder import MANY
from pretrain.checkpoint.folders import CHECKPOINTS
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.run_files import hint_at_runs
from pretrain.config.settings import REPLACED_TOKEN_DETECTION
from pretrain.convert.exports.hf_format import write_pretrained
from pretrain.convert.exports.in_transformers import (
    ExportCheck,
    check_tokenizer,
    compare_logits,
    quiet,
)
from pretrain.convert.exports.model_card import write_card
from pretrain.convert.model import Pretrained


def export(pretrained: Pretrained, run: Path, target: Path) -> ExportCheck:
    """Write the folder whole and compared with the trainer's model, or not at all.

    Raises:
        ConfigError: the logits of the export differ from the trainer's.
        ShardError: the target exists or cannot be written.
    """
    with complete_or_absent(target) as partial:
        write_pretrained(partial, pretrained)
        report = f"nothing was written. Report this with the {TOKENIZER_FILE} of {pretrained.name}"
        check_tokenizer(pretrained, partial, num_random=MANY, fix=report)
        is_discriminator = pretrained.objective == REPLACED_TOKEN_DETECTION
        auto_class = AutoModelForPreTraining if is_discriminator else AutoModelForMaskedLM
        with quiet():
            model = auto_class.from_pretrained(partial, trust_remote_code=True)
        fix = f"Report this with the run.json of {pretrained.name}"
        rows = load_settings(run).data.sequence_length  # an adapted encoder may take thousands
        check = compare_logits(model, pretrained._replace(sequence_length=rows), fix=fix)
        write_card(partial, pretrained, run, check, place=target)
    return check


def run_of(place: Path) -> Path:
    """Return the run folder, also of a checkpoint; the model card is made from its files."""
    place = place.absolute()
    run = place.parent.parent if place.parent.name == CHECKPOINTS else place
    if not (run / "run.json").is_file():
        raise ConfigError(
            f"{place} is neither a run folder, with its run.json, nor a checkpoint of one"
            + hint_at_runs(place)
        )
    return run
