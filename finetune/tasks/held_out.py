"""Which rows of a task of the user's own are scored on, and whether the scores can be believed.

Which rows are held out depends on their texts alone: equal texts stay together, and adding rows
never moves a row between training and development set.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from finetune.tasks.task import Example, TaskError
from pretrain.reports.words import counted

HELD_OUT_SHARE = 0.1
# Of fewer rows the standard error of an accuracy can be above 5 points: 0.5 / sqrt(100).
FEW_ROWS = 100


def hold_out(
    examples: Sequence[Example], file: Path
) -> tuple[list[Example], list[Example], tuple[str, ...]]:
    """Return the rows to train on, a tenth that is held out, and remarks for the user.

    Raises:
        TaskError: there are too few rows.
    """
    held_out = [example for example in examples if is_held_out(example.texts)]
    kept = [example for example in examples if not is_held_out(example.texts)]
    if not held_out or not kept:
        raise TaskError(
            f"{file}: {counted(len(examples), 'row')} are too few to hold some out; give a "
            "development file"
        )
    note = f"no development file: {len(held_out):,} of the {len(examples):,} rows are held out"
    if len(held_out) < FEW_ROWS:
        note += "; so few that small differences of scores are chance: give a larger one (--dev)"
    return kept, held_out, (note,)


def is_held_out(texts: tuple[str, ...]) -> bool:
    """Return whether an example is held out if there is no development file."""
    digest = hashlib.sha256("\0".join(texts).encode()).digest()
    return int.from_bytes(digest[:8], "big") < HELD_OUT_SHARE * 2**64


def recurring_notes(
    train: Sequence[Example], development: Sequence[Example], file: Path
) -> tuple[str, ...]:
    """Return a remark if texts of the training rows recur in a development file."""
    known = {example.texts for example in train}
    recurring = [example for example in development if example.texts in known]
    if not recurring:
        return ()
    return (
        f"warning: {len(recurring):,} of the {len(development):,} rows of {file} have texts of "
        f"training rows, such as row number {int(recurring[0].identity) + 1}: scores on them show "
        "memory; remove these rows from one of the files",
    )
