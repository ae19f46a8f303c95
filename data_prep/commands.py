"""The commands of `tupelo data`; each imports what it needs, so that --help is fast."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from data_prep.command_line import Commands, parser_of
from data_prep.files.errors import UserError
from data_prep.files.program import INTERRUPTED
from data_prep.files.quoting import on_one_line
from data_prep.masking import MaskingKind
from data_prep.settings import BuildSettings
from data_prep.shards.format import open_shards
from data_prep.shards.manifest import Manifest, SplitName, read_manifest

USER_ERROR = 2


def main(words: list[str]) -> int:
    """Run one command and return its exit status: 0, 1 for problems found, 2 for user errors."""
    options = vars(parser_of(_COMMANDS).parse_args(words or ["--help"]))
    run: Callable[..., int] = options.pop("run")
    try:
        return run(**options)
    except ValidationError as error:
        print(f"error: {_complaint(error)}", file=sys.stderr)
    except UserError as error:
        print(f"error: {on_one_line(error)}", file=sys.stderr)
    except KeyboardInterrupt:
        hint = "; the same command resumes the build" if run is _build else ""
        print(f"stopped{hint}", file=sys.stderr)
        return INTERRUPTED
    return USER_ERROR


def _build(to: Path, workers: int | None = None, **given: object) -> int:
    from data_prep.pipeline.build import build

    build(BuildSettings.model_validate(given), to, workers=workers)
    return 0


def _verify(folder: Path) -> int:
    from data_prep.shards.manifest import summary
    from data_prep.tools.verify import verify

    problems = verify(folder)
    print("\n".join(problems) or f"{folder}: fine\n{summary(read_manifest(folder))}")
    return 1 if problems else 0


def _repair(folder: Path, workers: int | None) -> int:
    from data_prep.tools.repair import repair

    restored = repair(folder, workers=workers)
    print(
        f"{folder}: restored {', '.join(restored)}" if restored else f"{folder}: nothing to repair"
    )
    return 0


def _show(folder: Path, split: SplitName, rows: int, seed: int, masking: MaskingKind) -> int:
    from data_prep.tools.show import shown_sequences

    for line in shown_sequences(open_shards(folder), split, count=rows, seed=seed, masking=masking):
        print(line)
    return 0


def _split(folder: Path, to: Path, valid_fraction: float, rows_per_shard: int) -> int:
    from data_prep.tools.split import hold_out_again

    manifest = hold_out_again(
        folder, to, valid_fraction=valid_fraction, rows_per_shard=rows_per_shard
    )
    return _report(to, manifest)


def _import(places: list[Path], to: Path, **settings: Any) -> int:
    from data_prep.tools.import_shards import ImportSettings, import_shards

    return _report(to, import_shards(places, to, ImportSettings(**settings)))


_COMMANDS: Commands = {
    "build": _build,
    "verify": _verify,
    "repair": _repair,
    "show": _show,
    "split": _split,
    "import": _import,
}


def _report(folder: Path, manifest: Manifest) -> int:
    from data_prep.shards.manifest import summary

    print(f"{folder}\n{summary(manifest)}")
    return 0


def _complaint(error: ValidationError) -> str:
    """Return the first error in the settings as one line."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    return f"--{str(first['loc'][0]).replace('_', '-')} {first['input']}: {message}"
