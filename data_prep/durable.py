"""Write files that are complete or absent, whatever stops the program."""

import os
from pathlib import Path


def save_text(file: Path, text: str) -> None:
    """Write a text file, complete or not at all."""
    partial = partial_name(file)
    partial.write_text(text, encoding="utf-8", newline="\n")
    replace(partial, file)


def replace(partial: Path, file: Path) -> None:
    """Give a written file its final name, once its content has reached the disk."""
    write_through(partial)
    partial.replace(file)


def write_through(file: Path) -> None:
    """Wait until the content of a file has reached the disk."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def partial_name(file: Path) -> Path:
    """Return a name for a file that is not complete; a killed build's worker may still write."""
    return file.with_name(f"{file.name}.partial-{os.getpid()}")
