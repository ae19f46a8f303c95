"""Counts and lists in sentences."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return "1 seed" or "3 seeds"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(words: Sequence[str]) -> str:
    """Return "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
