"""Options of `tupelo data`; those of a build follow from `BuildSettings`."""

import argparse
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from data_prep.files.program import shell_command
from data_prep.help_text import BUILD_EXAMPLES, COMMAND_TEXTS, EXAMPLES, OVERVIEW
from data_prep.masking import MaskingKind
from data_prep.settings import BuildSettings, DamagedFiles, TextSettings
from data_prep.shards.manifest import SplitName

Commands = dict[str, Callable[..., int]]

PROGRAM = shell_command("data")

# The first setting of each group of options.
BUILD_GROUPS = {
    "preset": "text",
    "unicode_form": "cleaning",
    "sentences": "tokenizer",
    "sequence_length": "sequences and splits",
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
    for name, (text, description) in COMMAND_TEXTS.items():
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
        _ADD_OPTIONS[name](command)
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


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a shard folder")


def _add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="the new folder")


def _add_repair(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    _add_workers(parser)


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument(
        "--split",
        choices=get_args(SplitName),
        default="valid",
        help="training or validation sequences; default valid",
    )
    parser.add_argument(
        "--rows",
        type=_at_least_1,
        default=3,
        metavar="N",
        help="number of sequences, spread over the split; default 3",
    )
    parser.add_argument(
        "--masking",
        choices=get_args(MaskingKind),
        default="tokens",
        help="what is masked: single tokens, whole words or spans of words; default tokens",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the masks; default 0"
    )


def _add_split(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    _add_to(parser)
    parser.add_argument("--valid-fraction", required=True, **_number_of("valid_fraction"))
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
        help="the tokenizer of these shards: a vocab.txt, a tokenizer.json, a folder with "
        "one, or a name on the Hugging Face Hub",
    )
    parser.add_argument("--sequence-length", **_number_of("sequence_length", "that of the samples"))
    fraction = TextSettings.model_fields["valid_fraction"].default
    parser.add_argument(
        "--valid-fraction", **_number_of("valid_fraction", str(fraction), default=fraction)
    )
    parser.add_argument("--keep-duplicates", action="store_true", help="keep duplicate texts")
    parser.add_argument(
        "--damaged-files",
        choices=get_args(DamagedFiles),
        default="stop",
        help="at a damaged file: stop, or skip it; default stop",
    )
    _add_rows_per_shard(parser)


_ADD_OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "build": _add_build,
    "verify": _add_folder,
    "repair": _add_repair,
    "show": _add_show,
    "split": _add_split,
    "import": _add_import,
}


def _argument(field: FieldInfo) -> dict[str, Any]:
    """Return the options of argparse for a setting."""
    is_union = get_origin(field.annotation) in (Union, types.UnionType)
    alternatives = get_args(field.annotation) if is_union else (field.annotation,)
    kinds = [kind for kind in alternatives if kind is not types.NoneType]
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


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=_at_least_1,
        default=None,
        metavar="N",
        help="number of processes; default: one per CPU",
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
