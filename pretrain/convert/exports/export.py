"""An encoder as a folder that transformers loads: written whole and compared, or not at all."""

from pathlib import Path

from data_prep.shards.folders import complete_or_absent
from pretrain.checkpoint.folders import CHECKPOINTS, identity_of
from pretrain.config.errors import ConfigError
from pretrain.convert.exports.hf_check import ExportCheck, check_export, rows_to_compare
from pretrain.convert.exports.hf_writer import write_pretrained
from pretrain.convert.exports.model_card import write_card
from pretrain.convert.pretrained import Pretrained


def export(pretrained: Pretrained, run: Path, target: Path) -> ExportCheck:
    """Write the folder whole and compared with the trainer's model, or not at all.

    Raises:
        ConfigError: the logits of the export differ from the trainer's.
        ShardError: the target exists or cannot be written.
    """
    with complete_or_absent(target) as partial:
        write_pretrained(partial, pretrained, run=identity_of(run))
        check = check_export(pretrained, partial, rows_to_compare(pretrained))
        write_card(partial, pretrained, run, check, place=target)
    return check


def run_of(place: Path) -> Path:
    """Return the run folder, also of a checkpoint; the model card is made from its files."""
    run = place.parent.parent if place.parent.name == CHECKPOINTS else place
    if not (run / "run.json").is_file():
        raise ConfigError(
            f"{place} is neither a run folder, with its run.json, nor a checkpoint of one"
        )
    return run
