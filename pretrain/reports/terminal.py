"""Sentences within the width of a terminal."""

import shutil
import textwrap

WIDTH = 80  # where the output is no terminal
WIDEST = 120  # longer lines are hard to read


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
