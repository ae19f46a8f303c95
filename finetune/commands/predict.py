r"""Predict the labels of new texts with a fine-tuned model.

    tupelo finetune predict runs/NAME reviews.csv --to predictions.csv
    echo "A film without a plot." | tupelo finetune predict runs/NAME

MODEL is a folder that fine-tuning kept, or any folder above it that holds no other. Texts are
read from the columns that the model was trained on. A row of a table keeps its columns, and
gets the prediction and the probability of every label, in place of columns of these names. A model
of tags reads .conll, or a sentence a line with spaces between its words, and writes .conll, or CSV
with a row a sentence; one of answers reads .json.
"""

import argparse
import csv
import functools
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.files.atomic import save_text
from data_prep.files.progress_bar import progress_bar
from finetune.results.model_folder import kept_folder
from finetune.tasks.examples import text_in
from finetune.tasks.tables import lines_of, read_rows
from finetune.tasks.task import OF_TOKENS, TaskError
from finetune.tasks.token_files import KINDS, read_questions, read_sentences
from pretrain.config.errors import ConfigError
from pretrain.reports.words import counted

if TYPE_CHECKING:
    from finetune.models.kept_record import KeptRecord

STDIN = Path("/dev/stdin")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune predict`."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of a fine-tuned model")
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help=".tsv, .csv, .jsonl, .parquet, or .txt with one text a line, of a pair a tab between "
        "the two; default, or -: such lines from stdin",
    )
    parser.add_argument(
        "--text", nargs="+", metavar="COLUMN", help="columns of the texts; default: as in training"
    )
    parser.add_argument("--to", type=Path, metavar="FILE", help="a .csv file (tags: or .conll)")


def main(arguments: argparse.Namespace) -> None:
    """Write the predictions.

    Raises:
        ConfigError: there is no such model, or an option does not fit it.
        TaskError: the file of the texts cannot be read.
    """
    to, found = arguments.to, io.StringIO()
    if to is not None and to.suffix.lower() not in (".csv", ".conll"):
        raise ConfigError(f"--to {to}: predictions are CSV; name a .csv file (of tags, or .conll)")
    if to is not None and not to.parent.is_dir():
        raise ConfigError(f"{to.parent} is no folder; make it, or choose another --to")
    if to is not None and to.exists():
        raise ConfigError(f"{to} exists; choose another --to, or remove it")
    folder, is_file = kept_folder(arguments.model), arguments.file not in (None, Path("-"))
    file = arguments.file if is_file else STDIN
    if not file.exists():
        raise ConfigError(f"{file} cannot be read: No such file or directory")
    # Imported late: torch takes seconds.
    import torch

    from finetune.models.kept_model import CHUNK, Predictor, read_model
    from pretrain.distributed.unusable_gpus import refuse_unusable_gpus

    kept = read_model(folder)
    given, known = arguments.text or kept.record.texts, kept.record.texts
    if len(given) != len(known):
        raise ConfigError(f"--text {' '.join(given)}: the model was trained on {' '.join(known)}")
    rows, texts = _rows(file, kept.record, given, file.suffix.lower() if is_file else ".txt")
    is_conll = to is not None and to.suffix.lower() == ".conll"
    if is_conll and kept.record.kind != "tags":
        raise ConfigError(f"--to {to}: the model predicts {kept.record.kind}; name a .csv file")
    if empty := sum(not all(part.strip() for part in text) for text in texts):
        print(f"warning: rows without text, predicted too: {empty:,}", file=sys.stderr)
    refuse_unusable_gpus()
    predictor = Predictor(kept, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    table = csv.writer(found if to else sys.stdout, lineterminator="\n")
    others = dict.fromkeys(name for row in rows for name in row if name not in predictor.columns)
    columns = [*others, *predictor.columns]
    dumps = functools.partial(json.dumps, ensure_ascii=False, default=str)
    if not is_conll:
        table.writerow(columns)
    with progress_bar("predict", len(texts), "row", shown=len(texts) > CHUNK) as bar:
        for row, text, predicted in zip(rows, texts, predictor.predictions(texts), strict=True):
            bar.update(1)
            if is_conll:
                tagged = zip(text, predicted["prediction"].split(), strict=True)
                found.writelines([*(f"{word} {tag}\n" for word, tag in tagged), "\n"])
                continue
            cells = [(row | predicted).get(name, "") for name in columns]
            table.writerow(dumps(cell) if isinstance(cell, list | dict) else cell for cell in cells)
    if to is not None:
        try:
            # Half an emoji in another column is written as its number.
            save_text(to, found.getvalue().encode(errors="backslashreplace").decode())
        except OSError as error:
            raise ConfigError(f"cannot write {to}: {error.strerror or error}") from None
        print(f"predictions: {to}, {counted(len(texts), 'row')}", file=sys.stderr)
    if predictor.num_cut:
        print(
            f"{predictor.num_cut:,} of the {len(texts):,} texts fill "
            f"{kept.record.sequence_length} tokens; text beyond is cut off",
            file=sys.stderr,
        )


def _rows(
    file: Path, record: "KeptRecord", columns: Sequence[str], suffix: str
) -> tuple[list[dict[str, object]], list[tuple[str, ...]]]:
    if record.kind == "tags" and suffix == ".txt":
        texts = [tuple(line.split()) for line in lines_of(file) if line.strip()]
        return [{"words": " ".join(words)} for words in texts], texts
    if record.kind in OF_TOKENS and KINDS.get(suffix) != record.kind:
        form = ".json" if record.kind == "answers" else ".conll, or .txt with spaces between words"
        raise TaskError(f"the model predicts {record.kind}; give {form}")
    if record.kind == "tags":
        texts = [words for words, _ in read_sentences(file, False)]
        return [{"words": " ".join(words)} for words in texts], texts
    if record.kind == "answers":
        asked = read_questions(file, False)
        texts = [each.texts for each in asked]
        return [{"id": each.identity, "question": each.texts[0]} for each in asked], texts
    rows = read_rows(file, columns, suffix=suffix, every_column=True)
    texts = [tuple(text_in(row, column, file) for column in columns) for row in rows]
    if suffix == ".txt" and columns[0] in re.split("[,;\t]", texts[0][0]):
        raise TaskError(
            f"{file}: its first line names a column; give a table as a .csv or .tsv file"
        )
    return [row.values for row in rows], texts
