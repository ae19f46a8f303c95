"""Options of `tupelo data`; those of a build follow from `BuildSettings`."""

import argparse
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from data_prep.files.program import shell_command
from data_prep.masking import MaskingKind
from data_prep.settings import PYTHON_DOCS, BuildSettings, DamagedFiles, TextSettings

Commands = dict[str, Callable[..., int]]

PROGRAM = shell_command("data")

OVERVIEW = """\
Build shards for pre-training from text, and work with finished ones.

A shard folder holds HDF5 files of token rows, their tokenizer and a manifest."""

EXAMPLES = """\
examples:
  tupelo data build --to data/mine --corpus my_texts/
  tupelo data verify data/mine
  tupelo data show data/mine --rows 2 | less
  tupelo data stats data/mine
  tupelo data mix data/mine data/wiki:weight=2.5 --to data/both
  tupelo data import hdf5_lower_case/ --tokenizer bert-base-uncased --to data/theirs

`tupelo data COMMAND --help` lists the options of a command."""

BUILD_EXAMPLES = f"""\
A source of --corpus is [KIND:]PLACE[:key=value]...

  KIND   text, jsonl, parquet, wikipedia (a dump), wikiextractor (its output), hub (a data set of
         the Hugging Face Hub) or {PYTHON_DOCS} (the installed Python documentation, no PLACE);
         detected from the name of PLACE if left out
  key    weight=2.5      number of uses of a training document in an epoch
         column=text     the column of the text, in jsonl, parquet and hub
         documents=line  what ends a document, in text: blank_line, line or file
         config=NAME, split=NAME, revision=NAME   of a data set on the hub

examples:
  tupelo data build --to data/docs
  tupelo data build --to data/mine --corpus my_texts/ wiki.jsonl.gz:weight=2 --cased
  tupelo data build --to data/tupe --preset tupe --corpus enwiki-articles.xml.bz2
  tupelo data build --to data/bert --corpus books/ --tokenizer bert-base-uncased

A build that was stopped is resumed by the same command."""


def parser_of(commands: Commands) -> argparse.ArgumentParser:
    """Return the parser; options are named after the parameters of each command's function."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=OVERVIEW,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (text, add_options) in _COMMANDS.items():
        options: dict[str, Any] = {}
        if name == "build":
            options = {"epilog": BUILD_EXAMPLES, "argument_default": argparse.SUPPRESS}
        command = subparsers.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )
        command.set_defaults(run=commands[name])
        add_options(command)
    return parser


def _add_build(parser: argparse.ArgumentParser) -> None:
    _add_to(parser)
    for name, field in BuildSettings.model_fields.items():
        parser.add_argument(_option(name), **_argument(field))
    parser.add_argument(
        "--cased", dest="lowercase", action="store_false", help="the same as --no-lowercase"
    )
    _add_workers(parser)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)


def _add_repair(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    _add_workers(parser)


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument("--split", choices=("train", "valid"), default="valid")
    parser.add_argument(
        "--rows",
        type=_at_least_1,
        default=3,
        metavar="N",
        help="number of rows, spread over the split",
    )
    parser.add_argument("--masking", choices=get_args(MaskingKind), default="tokens")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the masks")


def _add_stats(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the numbers to this file"
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="PNG; default: stats.png in the folder"
    )


def _add_split(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    _add_to(parser)
    parser.add_argument("--valid-fraction", required=True, **_number_of("valid_fraction"))
    _add_rows_per_shard(parser)


def _add_mix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ingredients",
        nargs="+",
        metavar="FOLDER[:weight=W]",
        help="W is the number of uses of each training document in an epoch; 2.5 uses all twice "
        "and every second one a third time",
    )
    _add_to(parser)
    parser.add_argument(
        "--sequence-length", **_number_of("sequence_length", "that of the first folder")
    )
    _add_rows_per_shard(parser)


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "places", nargs="+", type=Path, metavar="FILES_OR_FOLDER", help="HDF5 files with input_ids"
    )
    _add_to(parser)
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="PLACE",
        help="the tokenizer of these shards: a vocab.txt, a tokenizer.json, a folder that holds "
        "one, or a name on the Hugging Face Hub",
    )
    parser.add_argument("--sequence-length", **_number_of("sequence_length", "that of the samples"))
    fraction = TextSettings.model_fields["valid_fraction"].default
    parser.add_argument(
        "--valid-fraction", **_number_of("valid_fraction", str(fraction), default=fraction)
    )
    parser.add_argument(
        "--keep-duplicates", action="store_true", help="keep texts that repeat an earlier one"
    )
    parser.add_argument(
        "--damaged-files",
        choices=get_args(DamagedFiles),
        default="stop",
        help="what happens at a file that cannot be read to its end; default stop",
    )
    _add_rows_per_shard(parser)


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "build": ("build a shard folder from text", _add_build),
    "verify": ("read every byte of a shard folder and report damage", _add_verify),
    "repair": ("build a damaged shard folder again and restore its files", _add_repair),
    "show": ("print examples before and after masking", _add_show),
    "stats": ("count documents, tokens and words, and draw their distributions", _add_stats),
    "split": ("hold out other documents of a shard folder, in a new folder", _add_split),
    "mix": ("combine shard folders of one tokenizer, with weights", _add_mix),
    "import": ("convert HDF5 shards of NVIDIA's BERT, bing_bert or 24hBERT", _add_import),
}


def _argument(field: FieldInfo) -> dict[str, Any]:
    """Return the options of argparse for a setting."""
    kinds = [kind for kind in _alternatives(field.annotation) if kind is not types.NoneType]
    assert len(kinds) == 1, f"a setting of the types {kinds} has no command-line form"
    kind = kinds[0]
    shown, argument = field.default, dict[str, Any]()
    if get_origin(kind) is Literal:
        argument = {"choices": get_args(kind)}
    elif get_origin(kind) is tuple:
        argument = {"nargs": "+", "metavar": "SOURCE"}
        shown = " ".join(field.default)
    elif kind is bool:
        argument = {"action": argparse.BooleanOptionalAction}
        shown = "yes" if field.default else "no"
    elif kind is str:
        argument = {"metavar": "TEXT"}
    else:
        argument = {"metavar": "N", "type": kind}
    text = f"{field.description}; default {'none' if shown is None else shown}"
    return argument | {"help": text.replace("%", "%%")}


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return get_args(annotation) if is_union else (annotation,)


def _number_of(name: str, shown: str | None = None, **options: Any) -> dict[str, Any]:
    """Return the options of argparse for a number with the bounds of a setting."""
    field = TextSettings.model_fields[name]
    annotation: Any = Annotated[field.annotation, *field.metadata]
    bounded = TypeAdapter[Any](annotation)

    def number(text: str) -> Any:
        try:
            return bounded.validate_python(text)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            raise argparse.ArgumentTypeError(f"{text}: {message}") from error

    text = f"{field.description}; default: {shown}" if shown else field.description
    return {"type": number, "metavar": "N", "help": text} | options


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a shard folder")


def _add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="the new folder")


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=_at_least_1,
        default=None,
        metavar="N",
        help="number of processes; default: one for each CPU",
    )


def _add_rows_per_shard(parser: argparse.ArgumentParser) -> None:
    field = BuildSettings.model_fields["rows_per_shard"]
    parser.add_argument(
        "--rows-per-shard",
        type=_at_least_1,
        default=field.default,
        metavar="N",
        help=f"{field.description}; default {field.default}",
    )


def _at_least_1(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: not a whole number of at least 1")
    return int(text)
