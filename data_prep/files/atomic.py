"""Write files so that they are complete or absent, whatever stops the program."""

import errno
import os
from pathlib import Path


def save_text(file: Path, text: str) -> None:
    """Write a text file, complete or not at all."""
    # Of this process alone: a worker of a killed build may still write.
    partial = file.with_name(f"{file.name}.partial-{os.getpid()}")
    partial.write_text(text, encoding="utf-8", newline="\n")
    put_in_place(partial, file)


def put_in_place(partial: Path, final: Path) -> None:
    """Rename a file, or a folder with all it holds, after its content has reached the disk.

    Raises:
        OSError: it cannot be written or renamed.
    """
    for place in (*partial.rglob("*"), partial):
        write_through(place)
    partial.replace(final)
    write_through(final.parent)


def write_through(place: Path) -> None:
    """Wait until the content of a file, or the names in a folder, have reached the disk."""
    try:
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        if not place.is_dir():  # some file systems cannot wait for names
            raise


def remove_strays(folder: Path) -> None:
    """Remove what processes that are gone were writing; the caller holds the lock of the folder."""
    for file in folder.rglob("*.partial-*"):
        if file.is_file() and not Path("/proc", file.name.rpartition("-")[2]).exists():
            file.unlink(missing_ok=True)


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
