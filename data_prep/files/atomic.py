"""Write files so that they are complete or absent, whatever stops the program."""

import contextlib
import errno
import os
from pathlib import Path


def save_text(file: Path, text: str) -> None:
    """Write a text file, complete or not at all."""
    partial = partial_name(file)
    partial.write_text(text, encoding="utf-8", newline="\n")
    replace(partial, file)


def replace(partial: Path, file: Path) -> None:
    """Rename a written file to its final name, after its content has reached the disk."""
    write_through(partial)
    put_in_place(partial, file)


def put_in_place(partial: Path, final: Path) -> None:
    """Rename a file or folder whose content has reached the disk, so that a loss of power keeps it.

    Raises:
        OSError: it cannot be renamed.
    """
    if partial.is_dir():
        write_names_through(partial)
    partial.replace(final)
    write_names_through(final.parent)


def write_names_through(folder: Path) -> None:
    """Wait until the names in a folder have reached the disk, where its file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_through(file: Path) -> None:
    """Wait until the content of a file has reached the disk."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def partial_name(file: Path) -> Path:
    """Return a temporary name, unique to this process: a killed build's worker may still write."""
    return file.with_name(f"{file.name}.partial-{os.getpid()}")


def append_whole(file: Path, text: str) -> None:
    """Append text to a file: all of it, or, if that fails, nothing."""
    with file.open("ab", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        content = text.encode()
        try:
            written = stream.write(content)
            if written != len(content):  # a disk that fills up writes a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            stream.truncate(size)
            raise


def remove_cut_line(file: Path) -> None:
    """Remove an incomplete last line, left by a process that died while writing it."""
    if file.exists():
        text = file.read_bytes()
        end = text.rfind(b"\n") + 1
        if end < len(text):
            os.truncate(file, end)
