"""Folders that appear complete or not at all, and the workplace of a build, which stays.

A folder is written beside its place and renamed at the end. Short work is thrown away when it
fails; a build keeps what it has done, because it may take days.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_prep.shards.manifest import ShardError

CONTENT = "content"  # the folder in a workplace that gets the name of the finished one

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def complete_or_absent(folder: Path) -> Iterator[Path]:
    """Give a new folder beside `folder` that takes its name at the end, or is removed.

    Raises:
        ShardError: `folder` exists or cannot be written.
    """
    refuse_existing(folder)
    partial = folder.parent / f".{folder.name}.partial-{os.getpid()}"
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.rename(folder)
    except OSError as error:
        raise cannot_be_written(folder, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def workplace_of(folder: Path) -> Iterator[Path]:
    """Give the folder in which `folder` is built, "NAME.building" beside it, to this process alone.

    It stays when the work fails or is killed, and is given again the next time.

    Raises:
        ShardError: `folder` exists, cannot be written, or is being built by another process.
    """
    workplace = folder.parent / f"{folder.name}.building"
    if folder.exists():
        _remove_remains(workplace)
    refuse_existing(folder)
    try:
        workplace.mkdir(parents=True, exist_ok=True)
        with (workplace / "lock").open("a") as lock:
            try:
                # The kernel gives the lock back when the process dies, however it dies.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ShardError(
                    f"{folder}: another process is building it at this moment; wait for it or "
                    "build into another folder"
                ) from None
            refuse_existing(folder)  # it may have been finished while this process came here
            yield workplace
    except OSError as error:
        raise cannot_be_written(folder, error, keeps=workplace) from error


def finish(workplace: Path, folder: Path) -> None:
    """Give the finished content its name and remove the workplace."""
    (workplace / CONTENT).rename(folder)
    shutil.rmtree(workplace)


def _remove_remains(workplace: Path) -> None:
    """Remove what is left when a process was killed after it had renamed the finished content."""
    if (workplace / "lock").exists() and not (workplace / CONTENT).exists():
        shutil.rmtree(workplace, ignore_errors=True)


def refuse_existing(folder: Path) -> None:
    """Refuse to write where something is.

    Raises:
        ShardError: `folder` exists.
    """
    if folder.exists():
        raise ShardError(f"{folder}: exists already; remove it or build into another folder")


def cannot_be_written(folder: Path, error: OSError, *, keeps: Path | None = None) -> ShardError:
    """Return an operating system's complaint as one line with what to do about it."""
    if error.errno in NO_SPACE:
        kept = f"; what is done is kept in {keeps}" if keeps else ""
        return ShardError(
            f"{folder}: no space left on the disk; free some and give the same command again{kept}"
        )
    return ShardError(
        f"{folder}: cannot be written ({error.strerror or error}); "
        "choose a folder with write permission and enough space"
    )
