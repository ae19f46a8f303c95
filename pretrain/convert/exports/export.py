"""An encoder as a folder that transformers loads: written whole and compared, or not at all."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from data_prep.files.quoting import quoted
from data_prep.shards.manifest import TOKENIZER_FILE
from pretrain.checkpoint.folders import CHECKPOINTS, identity_of
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.convert.exports.card_text import shown_place
from pretrain.convert.exports.hf_check import ExportCheck, check_export, rows_to_compare
from pretrain.convert.exports.hf_format import (
    CODE_FILES,
    CONFIG_FILE,
    RECORD,
)
from pretrain.convert.exports.hf_writer import (
    SPECIAL_TOKENS_FILE,
    TOKENIZER_CONFIG_FILE,
    write_pretrained,
)
from pretrain.convert.exports.model_card import CARD_FILE, PLOT_FILE, write_card
from pretrain.convert.exports.whole_folder import written_whole
from pretrain.convert.pretrained import Pretrained
from pretrain.convert.stored_weights import WEIGHTS_FILE

SAVED_AGAIN = "transformers_version"  # in config.json; only transformers writes it

FILES = {
    *(CONFIG_FILE, WEIGHTS_FILE, *CODE_FILES),
    *(TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, SPECIAL_TOKENS_FILE),
    *(CARD_FILE, PLOT_FILE),
}


def export(pretrained: Pretrained, run: Path, target: Path) -> ExportCheck:
    """Write the folder whole and compared with the trainer's model, or not at all.

    Raises:
        ConfigError: the target holds something else than an earlier export of this run or cannot
            be written, or the logits of the export differ from the trainer's.
    """
    identity = identity_of(run)
    _refuse_other_content(target, pretrained.name, identity)
    with written_whole(target) as partial:
        write_pretrained(partial, pretrained, run=identity)
        check = check_export(pretrained, partial, rows_to_compare(pretrained, run))
        write_card(partial, pretrained, run, check, place=shown_place(target))
    return check


def run_of(place: Path) -> Path:
    """Return the run folder, also of a checkpoint; the model card is made from its files."""
    run = place.parent.parent if place.parent.name == CHECKPOINTS else place
    if not (run / "run.json").is_file():
        raise ConfigError(
            f"{place} is neither a run folder, with its run.json, nor a checkpoint of one"
        )
    return run


def earlier_export(
    target: Path, is_ours: Callable[[Mapping[str, Any]], bool], *, kind: str
) -> dict[str, Any] | None:
    """Return the configuration of the export that a new one would replace; None: there is none.

    Args:
        target: of the new export.
        is_ours: whether a configuration is that of an export of this kind.
        kind: what such a folder is called in messages.

    Raises:
        ConfigError: the target is a file, holds something else, or a model that transformers saved.
    """
    if not target.exists():
        return None
    if not target.is_dir():
        raise ConfigError(f"{target} is a file; choose another --to")
    names = {entry.name for entry in target.iterdir()}
    unknown = sorted(names - FILES)
    content = read_json_object(target / CONFIG_FILE) if CONFIG_FILE in names and not unknown else {}
    if unknown or (names and not is_ours(content)):
        found = f"holds {unknown[0]}" if unknown else f"is no {kind}"
        raise ConfigError(
            f"{target} {found}, and an export would replace the folder; choose another --to"
        )
    if SAVED_AGAIN in content:
        raise ConfigError(
            f"{target} holds a model that transformers has saved there, perhaps trained further; "
            "choose another --to"
        )
    return content or None


def _refuse_other_content(target: Path, name: str, identity: str | None) -> None:
    content = earlier_export(target, lambda found: RECORD in found, kind="export")
    if content is None:
        return
    record = content[RECORD] if isinstance(content[RECORD], dict) else {}
    theirs, same = record.get("run"), record.get("name") == name
    if theirs is not None and identity is not None:
        same = theirs == identity
    if not same:
        raise ConfigError(
            f"{target} holds an export of another run, {_described(record)}; choose another --to, "
            "or remove that folder"
        )


def _described(record: Mapping[str, Any]) -> str:
    step = record.get("step")
    return quoted(record.get("name")) + (f" step {step:,}" if isinstance(step, int) else "")
