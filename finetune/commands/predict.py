r"""Predict the labels of new texts with a fine-tuned model.

    tupelo finetune predict runs/NAME reviews.csv --to predictions.csv
    echo "A film without a plot." | tupelo finetune predict runs/NAME

MODEL is a folder that fine-tuning kept, or any folder above it that holds no other. Texts are
read from the columns that the model was trained on. Each of them becomes a row, in the same order:
the label and the probability of every label, or a number.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pretrain.config.errors import ConfigError
from pretrain.reports.words import counted, listed

if TYPE_CHECKING:
    from finetune.models.kept_model import KeptRecord

INPUT_FORMATS = ("csv", "tsv", "jsonl", "lines")
OUTPUT_FORMATS = ("csv", "jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune predict`."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of a fine-tuned model")
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help=".csv, .tsv, .jsonl, or .txt with one text a line; default, or -: stdin",
    )
    parser.add_argument(
        "--text",
        nargs="+",
        dest="texts",
        metavar="COLUMN",
        help="column of the text, or columns of the pair; default: those of training",
    )
    parser.add_argument(
        "--input-format",
        choices=INPUT_FORMATS,
        help="default: that of the suffix, of stdin lines: one text in each, of a pair a tab "
        "between the two",
    )
    parser.add_argument("--to", type=Path, metavar="FILE", help="default: stdout")
    parser.add_argument(
        "--output-format",
        choices=OUTPUT_FORMATS,
        help="default: that of the suffix of --to, of stdout csv",
    )
    parser.add_argument("--replace", action="store_true", help="replace the file of --to")


def main(arguments: argparse.Namespace) -> None:
    """Write the predictions.

    Raises:
        ConfigError: there is no such model, or an option does not fit it.
        TaskError: the file of the texts cannot be read.
    """
    # Imported late: torch takes seconds.
    from data_prep.files.progress_bar import progress_bar
    from finetune.models.kept_model import kept_folder, read_model, read_record
    from finetune.models.prediction_files import PredictionWriter
    from finetune.models.predictor import CHUNK, Predictor, default_device

    output_format = _output_format(arguments)
    folder = kept_folder(arguments.model)
    record = read_record(folder)
    texts = _texts(arguments, record)
    predictor = Predictor(read_model(folder), default_device())
    with (
        _opened(arguments.to, replaces=arguments.replace) as stream,
        progress_bar("predict", len(texts), "row", shown=len(texts) > CHUNK) as bar,
    ):
        writer = PredictionWriter(record, stream, output_format)
        for outputs in predictor.chunks(texts):
            writer.write(outputs)
            bar.update(len(outputs))
    if predictor.num_cut:
        print(
            f"{predictor.num_cut:,} of the {len(texts):,} texts have {record.sequence_length} "
            "tokens or more, and are cut to that",
            file=sys.stderr,
        )


def _texts(arguments: argparse.Namespace, record: "KeptRecord") -> list[tuple[str, ...]]:
    from finetune.models.prediction_files import LINES, STDIN, read_texts

    columns = arguments.texts or record.texts
    if len(columns) != len(record.texts):
        raise ConfigError(
            f"--text {' '.join(columns)}: the model of {record.task} was trained on "
            f"{counted(len(record.texts), 'column')}, {listed(record.texts)}; name as many"
        )
    is_stdin = arguments.file in (None, Path("-"))
    if is_stdin and sys.stdin.isatty():
        print("texts from the terminal, one in each line; end them with Ctrl-D", file=sys.stderr)
    file, default = (STDIN, LINES) if is_stdin else (arguments.file, None)
    return read_texts(record, file, columns, arguments.input_format or default)


def _output_format(arguments: argparse.Namespace) -> str:
    if arguments.output_format is not None:
        return str(arguments.output_format)
    if arguments.to is None:
        return OUTPUT_FORMATS[0]
    suffix = str(arguments.to.suffix.lower().removeprefix("."))
    if suffix not in OUTPUT_FORMATS:
        raise ConfigError(
            f"--to {arguments.to}: unknown format; use .csv or .jsonl, or give --output-format"
        )
    return suffix


@contextmanager
def _opened(place: Path | None, *, replaces: bool) -> Iterator[TextIO]:
    """Yield stdout, or a stream whose content becomes the file when it is complete."""
    from data_prep.files.atomic import partial_name, replace

    if place is None:
        yield sys.stdout
        return
    if place.exists() and not replaces:
        raise ConfigError(f"{place} exists; choose another --to, or give --replace")
    partial = partial_name(place)
    try:
        with partial.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        replace(partial, place)
    except OSError as error:
        raise ConfigError(f"cannot write {place}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            partial.unlink()
