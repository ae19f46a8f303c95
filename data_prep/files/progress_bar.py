"""The progress bar of all commands: done, rate and time left, on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from tqdm import tqdm

if TYPE_CHECKING:
    Bar = tqdm[NoReturn]


@contextmanager
def progress_bar(stage: str, total: int | None, unit: str, *, shown: bool) -> Iterator["Bar"]:
    """Show the progress of a stage; `update` advances it.

    Args:
        stage: Name of the stage.
        total: Number of units, None if unknown.
        unit: "B" for bytes, or a noun in the singular.
        shown: Whether to show anything.
    """
    with tqdm(
        desc=stage,
        total=total,
        unit=unit if unit == "B" else f" {unit}s",
        unit_scale=True,
        disable=not shown,
        # In a log file every update is a line.
        mininterval=0.2 if sys.stderr.isatty() else 20,
    ) as bar:
        yield bar
