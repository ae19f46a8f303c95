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
from data_prep.shards.manifest import SplitName

Commands = dict[str, Callable[..., int]]

PROGRAM = shell_command("data")

# Everything that is printed as it is written here fits 80 columns.
OVERVIEW = """\
Tokenize a text corpus into shards for masked-language-model pre-training, and
inspect, check and combine such shards.

A shard folder holds fixed-length rows of token ids (HDF5), split into training
and validation documents, with the tokenizer and a manifest."""

EXAMPLES = """\
examples:
  tupelo data build --to data/mine --corpus my_texts/
  tupelo data verify data/mine
  tupelo data show data/mine --rows 2 | less
  tupelo data stats data/mine
  tupelo data mix data/mine data/wiki:weight=2.5 --to data/both
  tupelo data import theirs/ --tokenizer vocab.txt --to data/theirs

`tupelo data COMMAND --help` explains a command and lists its options."""

BUILD_EXAMPLES = f"""\
A source of --corpus is [KIND:]PLACE[:key=value]...

  KIND   text, jsonl, parquet, wikipedia (a dump), wikiextractor (its output),
         hub (a data set of the Hugging Face Hub) or {PYTHON_DOCS} (the
         installed Python documentation, no PLACE); detected from the name of
         PLACE if left out
  key    weight=2.5      uses of a training document in an epoch
         column=text     the column of the text, in jsonl, parquet and hub
         documents=line  what ends a document, in text: blank_line, line, file
         config=NAME, split=NAME, revision=NAME   of a data set on the hub

examples:
  tupelo data build --to data/docs
  tupelo data build --to data/mine --corpus my_texts/ wiki.jsonl.gz:weight=2
  tupelo data build --to data/tupe --preset tupe --corpus enwiki.xml.bz2
  tupelo data build --to data/bert --corpus books/ --tokenizer bert-base-uncased

A build that was stopped is resumed by the same command."""

# The first setting of each group of options.
BUILD_GROUPS = {
    "preset": "text",
    "unicode_form": "cleaning",
    "sentences": "tokenizer",
    "sequence_length": "rows and splits",
}


def parser_of(commands: Commands) -> argparse.ArgumentParser:
    """Return the parser; options are named after the parameters of each command's function."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=OVERVIEW,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (text, description, add_options) in _COMMANDS.items():
        options: dict[str, Any] = {}
        if name == "build":
            options = {"epilog": BUILD_EXAMPLES, "argument_default": argparse.SUPPRESS}
            options["usage"] = "%(prog)s --to FOLDER [--corpus SOURCE...] [options]"
        command = subparsers.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.\n\n{description}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )
        command.set_defaults(run=commands[name])
        add_options(command)
    return parser


def _add_build(parser: argparse.ArgumentParser) -> None:
    _add_to(parser)
    _add_workers(parser)
    fields = dict(BuildSettings.model_fields)
    # With what it belongs to; the other settings are listed in the order of their groups.
    names = list(fields)
    names.insert(names.index("tokenizer") + 1, names.pop(names.index("vocabulary_size")))
    group: argparse._ActionsContainer = parser
    for name in names:
        if name in BUILD_GROUPS:
            group = parser.add_argument_group(BUILD_GROUPS[name])
        group.add_argument(_option(name), **_argument(fields[name]))
        if name == "lowercase":
            group.add_argument(
                "--cased", dest=name, action="store_false", help="the same as --no-lowercase"
            )


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)


def _add_repair(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    _add_workers(parser)


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument(
        "--split",
        choices=get_args(SplitName),
        default="valid",
        help="training or validation rows; default valid",
    )
    parser.add_argument(
        "--rows",
        type=_at_least_1,
        default=3,
        metavar="N",
        help="number of rows, spread over the split; default 3",
    )
    parser.add_argument(
        "--masking",
        choices=get_args(MaskingKind),
        default="tokens",
        help="what is hidden: single tokens, whole words or spans of words; default tokens",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the masks; default 0"
    )


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


_COMMANDS: dict[str, tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = {
    "build": (
        "tokenize a text corpus into a new shard folder",
        """\
Reads the corpus, cleans and deduplicates it, holds out validation documents,
trains a tokenizer (or loads one), and packs the token ids of the documents
into rows of fixed length without padding. Masks are drawn during training.""",
        _add_build,
    ),
    "verify": (
        "check a shard folder: structure, counts, sha256",
        """\
Reads every byte and compares it with the manifest. Exit status 1 if anything
is damaged, missing or contradictory.""",
        _add_verify,
    ),
    "repair": (
        "restore damaged files of a shard folder from its corpus",
        """\
Builds the folder again from the corpus that its manifest names, and replaces
what is damaged or missing. Changes nothing if the text has changed since.""",
        _add_repair,
    ),
    "show": (
        "print rows as text, before and after masking",
        """\
Decodes some rows and prints them as they are stored and as the model sees
them, with the tokens that it must predict.""",
        _add_show,
    ),
    "stats": (
        "lengths, vocabulary use and share of [UNK], with a picture",
        """\
Counts documents, words and tokens, tokens per word, unused entries of the
vocabulary and unknown tokens, and draws the distributions.""",
        _add_stats,
    ),
    "split": (
        "choose another validation set, in a new shard folder",
        """\
Joins training and validation documents and holds out another share of them.
Needs no text: the documents are taken from the rows.""",
        _add_split,
    ),
    "mix": (
        "combine shard folders of one tokenizer, with weights",
        """\
Writes the documents of several folders into a new one, each as often as its
weight says. Needs no text. The tokenizers must give the same ids.""",
        _add_mix,
    ),
    "import": (
        "convert the HDF5 shards of NVIDIA's BERT, bing_bert or 24hBERT",
        """\
Restores the words that static masking hid, drops copies that differ in their
masks only, and packs rows for dynamic masking.""",
        _add_import,
    ),
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
