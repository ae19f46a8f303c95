"""Command line: build a shard folder, verify one, or show what is in it."""

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from tokenizers import Tokenizer

from data_prep.build import BuildSettings, build, summary
from data_prep.corpora import CorpusError
from data_prep.masking import IGNORED, mask_rows
from data_prep.shards import ShardError, SplitName, open_shards, verify
from data_prep.tokenizer import CONTINUATION, MASK, UNK, TokenizerKind

WIDTH = 96


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 for problems found, 2 for user errors."""
    options = vars(_parser().parse_args(arguments))
    run = options.pop("run")
    try:
        return int(run(**options))
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        print(f"error: {option} {first['input']}: {first['msg']}", file=sys.stderr)
    except (CorpusError, ShardError) as error:
        print(f"error: {error}", file=sys.stderr)
    return 2


def _build(to: Path, **given: object) -> int:
    build(BuildSettings.model_validate(given), to)
    return 0


def _verify(folder: Path) -> int:
    problems = verify(folder)
    print("\n".join(problems) or f"{folder}: fine\n{summary(open_shards(folder).manifest)}")
    return 1 if problems else 0


def _show(folder: Path, split: SplitName, rows: int, seed: int) -> int:
    """Print rows spread over the split, as they are and as the model sees them."""
    shards = open_shards(folder)
    manifest, all_rows = shards.manifest, shards.split(split)
    tokenizer = Tokenizer.from_file(str(shards.tokenizer_path))
    numbers = np.unique(np.linspace(0, all_rows.num_rows - 1, rows).astype(int))
    original = all_rows.rows(numbers)
    masked = mask_rows(original, numbers, seed=seed, epoch=0, tokenizer=manifest.tokenizer)
    print(f"{folder}: {manifest.source}\n{summary(manifest)}")
    print("Hidden words are [MASK], {replaced by a random one} or {left}; all are to be predicted.")
    for number, before, after, positions, labels in zip(numbers, original, *masked, strict=True):
        places = positions[labels != IGNORED].tolist()
        words, answers = _words(tokenizer, after), _words(tokenizer, before)
        predictions = [f"{answers[place]} ({place})" for place in places]
        for place in places:
            if words[place] != MASK:
                piece = words[place].removeprefix(CONTINUATION)
                words[place] = words[place].replace(piece, f"{{{piece}}}")
        print(f"\n{split} row {number}")
        _print_wrapped("text", _joined(answers))
        _print_wrapped("masked", _joined(words))
        _print_wrapped("answers", ", ".join(predictions))
    return 0


def _words(tokenizer: Tokenizer, ids: NDArray[np.integer]) -> list[str]:
    return [tokenizer.id_to_token(token) or UNK for token in ids.tolist()]


def _joined(words: list[str]) -> str:
    return " ".join(words).replace(f" {CONTINUATION}", "")


def _print_wrapped(title: str, text: str) -> None:
    first, rest = f"  {title:<9}", " " * 11
    print(textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m data_prep", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="build | verify | show")

    builder = commands.add_parser(
        "build", help="build a shard folder", argument_default=argparse.SUPPRESS
    )
    builder.set_defaults(run=_build)
    builder.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="new folder")
    _add_setting(
        builder,
        "corpus",
        nargs="+",
        metavar="PATH",
        note=' (text files, also .xz .gz .bz2, folders of *.txt, or "python-docs")',
    )
    _add_setting(builder, "sequence_length", type=int, metavar="N")
    _add_setting(builder, "vocabulary_size", type=int, metavar="N")
    _add_setting(builder, "tokenizer", choices=get_args(TokenizerKind))
    builder.add_argument(
        "--cased", dest="lowercase", action="store_false", help="keep capitals and accents"
    )
    _add_setting(builder, "valid_fraction", type=float, metavar="F")
    _add_setting(builder, "max_words", type=int, metavar="N")

    verifier = commands.add_parser("verify", help="read every file and report damage")
    verifier.set_defaults(run=_verify)
    verifier.add_argument("folder", type=Path)

    shower = commands.add_parser("show", help="print examples before and after masking")
    shower.set_defaults(run=_show)
    shower.add_argument("folder", type=Path)
    shower.add_argument("--split", choices=get_args(SplitName), default="valid")
    shower.add_argument(
        "--rows", type=_at_least_1, default=3, help="how many, spread over the split"
    )
    shower.add_argument("--seed", type=int, default=0, help="seed of the masks")
    return parser


def _at_least_1(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1 is needed")
    return number


def _add_setting(
    parser: argparse.ArgumentParser, name: str, *, note: str = "", **options: Any
) -> None:
    field = BuildSettings.model_fields[name]
    text = f"{field.description}{note}; default {field.default}"
    parser.add_argument(f"--{name.replace('_', '-')}", help=text, **options)


if __name__ == "__main__":
    sys.exit(main())
