"""Write a trained encoder as a folder that Hugging Face's transformers loads, and compare both.

    tupelo export runs/NAME
    tupelo export runs/NAME --checkpoint 10000 --to my_model

`bert-a` with norm=post becomes a `BertForMaskedLM`; other variants carry code of their own.
"""

import argparse
import shutil
from pathlib import Path

from data_prep.files.atomic import write_through
from data_prep.shards.manifest import TOKENIZER_FILE
from pretrain.checkpoint.folders import CHECKPOINTS
from pretrain.config.errors import ConfigError
from pretrain.convert.hf_check import ExportCheck, check_export, rows_to_compare
from pretrain.convert.hf_format import (
    CODE_FILES,
    CONFIG_FILE,
    WEIGHTS_FILE,
    is_export,
    is_stock_bert,
)
from pretrain.convert.hf_writer import SPECIAL_TOKENS_FILE, TOKENIZER_CONFIG_FILE, write_pretrained
from pretrain.convert.model_card import CARD_FILE, PLOT_FILE, write_card
from pretrain.convert.pretrained import Pretrained, load_pretrained

FILES = {
    *(CONFIG_FILE, WEIGHTS_FILE, *CODE_FILES),
    *(TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, SPECIAL_TOKENS_FILE),
    *(CARD_FILE, PLOT_FILE),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo export`."""
    parser.add_argument("run", type=Path, help="run folder, or one of its checkpoint folders")
    parser.add_argument(
        "--to", type=Path, help="folder to write; default: RUN/export/step_00010000"
    )
    parser.add_argument("--checkpoint", help="step of the run, such as 10000; default: the newest")


def main(arguments: argparse.Namespace) -> None:
    """Export a run; print the folder and the largest difference to the trainer."""
    run = _run_of(arguments.run)
    pretrained = load_pretrained(arguments.run, checkpoint=arguments.checkpoint)
    target = arguments.to or run / "export" / Path(pretrained.place).name
    check = export(pretrained, run, target)
    kind = "a stock BertForMaskedLM" if is_stock_bert(pretrained.model) else "with its own code"
    print(f"exported {pretrained.name}, step {pretrained.step:,}, to {target}: {kind}")
    print(
        f"largest difference to the trainer: {check.largest_difference:.2g} in "
        f"{check.num_logits:,} logits of {check.source}"
    )
    if pretrained.text_encoder.record.moses is not None:
        print(f"note: the tokenizer expects text after Moses; see {target / CARD_FILE}")


def export(pretrained: Pretrained, run: Path, target: Path) -> ExportCheck:
    """Write the folder whole and compared with the trainer's model, or not at all.

    Raises:
        ConfigError: the target holds something else or cannot be written, or the logits of the
            export differ from the trainer's.
    """
    _refuse_other_content(target)
    # The folder has its final name: transformers names the module of the code after it.
    around = target.absolute().parent / f".{target.name}.partial"
    partial = around / target.name
    shutil.rmtree(around, ignore_errors=True)  # of an export that was killed
    try:
        partial.mkdir(parents=True)
        write_pretrained(partial, pretrained)
        check = check_export(pretrained, partial, rows_to_compare(pretrained, run))
        write_card(partial, pretrained, run, check, place=str(target))
        for file in partial.iterdir():
            write_through(file)
        _put_in_place(partial, target, before=around / "before")
    except OSError as error:
        raise ConfigError(
            f"cannot write the export to {target}: {error.strerror or error}; choose another --to"
        ) from None
    finally:
        shutil.rmtree(around, ignore_errors=True)
    return check


def _put_in_place(partial: Path, target: Path, *, before: Path) -> None:
    replaces = target.exists()
    if replaces:
        target.rename(before)
    try:
        partial.rename(target)
    except OSError:
        if replaces:
            before.rename(target)
        raise


def _run_of(place: Path) -> Path:
    """Return the run folder, also of a checkpoint; the model card is made from its files."""
    run = place.parent.parent if place.parent.name == CHECKPOINTS else place
    if not (run / "run.json").is_file():
        raise ConfigError(
            f"{place} is neither a run folder, with its run.json, nor a checkpoint of one"
        )
    return run


def _refuse_other_content(target: Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise ConfigError(f"{target} is a file; choose another --to")
    names = {entry.name for entry in target.iterdir()}
    unknown = sorted(names - FILES)
    if unknown or (names and not is_export(target)):
        found = f"holds {unknown[0]}" if unknown else "is no export"
        raise ConfigError(
            f"{target} {found}, and an export would replace the folder; choose another --to"
        )
