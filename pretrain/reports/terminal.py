"""Tables and sentences within the width of a terminal."""

import shutil
import textwrap
from collections.abc import Sequence

from tabulate import tabulate

WIDTH = 80  # where the output is no terminal
WIDEST = 120  # longer lines are hard to read
GAP = 2  # between columns


def terminal_width() -> int:
    """Return the width of the terminal in letters, at most `WIDEST`."""
    return min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDEST)


def paragraph(text: str, width: int, *, first: str = "", rest: str = "") -> str:
    """Return a text in lines of at most `width` letters; longer words, such as paths, stay whole.

    Args:
        text: a sentence or more.
        width: in letters.
        first: begins the first line.
        rest: begins the other lines.
    """
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def fitting_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    repeated: int = 1,
    text_columns: Sequence[int] = (),
) -> str:
    """Return a table of at most `width` letters; as several, below each other, where it is wider.

    Columns of numbers stay whole; a first column or a column of text that takes more than a third
    of the width is broken into lines.

    Args:
        headers: names of the columns.
        rows: cells, which can hold several lines.
        width: in letters.
        repeated: number of columns that begin each part.
        text_columns: indices of columns of text, which are aligned to the left.
    """
    most = width // 3
    is_text = {0, *text_columns}
    columns = [
        [_broken(cell, most) if index in is_text else cell for cell in column]
        for index, column in enumerate(zip(headers, *rows, strict=True))
    ]
    widths = [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
    keys = list(range(repeated))
    parts: list[list[int]] = [[]]
    room = width - sum(widths[key] + GAP for key in keys) + GAP
    left = room
    for index in range(repeated, len(columns)):
        if parts[-1] and widths[index] + GAP > left:
            parts.append([])
            left = room
        parts[-1].append(index)
        left -= widths[index] + GAP
    return "\n\n".join(
        _table([(columns[n], widths[n], n in is_text) for n in (*keys, *part)]) for part in parts
    )


def _table(columns: Sequence[tuple[Sequence[str], int, bool]]) -> str:
    """Return a table of columns with their widths; those of text are aligned to the left."""
    cells = [[names[0], "-" * width, *names[1:]] for names, width, _ in columns]
    return tabulate(
        list(zip(*cells, strict=True)),
        tablefmt="plain",  # others make a column wider than its header
        colalign=["left" if is_text else "right" for _, _, is_text in columns],
        disable_numparse=True,
    )


def _broken(cell: str, width: int) -> str:
    lines = [
        textwrap.wrap(line, width, break_on_hyphens=False) or [""] for line in cell.split("\n")
    ]
    return "\n".join(line for found in lines for line in found)
