"""Counts and amounts in sentences, and sentences within the width of a terminal."""

import shutil
import textwrap

WIDTH = 80  # where the output is no terminal
WIDEST = 120  # longer lines are hard to read


def counted(number: int, noun: str) -> str:
    """Return "1 seed" or "3 seeds"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def amount(value: float | None, axis: str) -> str:
    """Return an amount of an axis with its unit; None is "not reached"."""
    if value is None:
        return "not reached"
    if axis == "training_seconds":
        minutes, seconds = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        if hours:
            return f"{hours} h {minutes:02d} min"
        return f"{minutes} min {seconds:02d} s" if minutes else f"{value:.1f} s"
    if axis == "step":
        return f"{value:,.0f}"
    for size, name in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.999995 * size:  # 999,999 is 1.00 M
            return f"{value / size:.2f} {name}"
    return f"{value:.0f}"


def terminal_width() -> int:
    """Return the width of the terminal in letters, at most `WIDEST`."""
    return min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDEST)


def paragraph(text: str, width: int, *, first: str = "", rest: str = "") -> str:
    """Return a text in lines of at most `width` letters; longer words, such as paths, stay whole.

    `first` begins the first line, `rest` the others.
    """
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
