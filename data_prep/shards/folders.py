"""Folders that appear complete or not at all, and the working folder of a build, which persists.

A folder is written under another name beside its final one and renamed at the end. Short work is
removed when it fails; a build keeps its finished parts, because it may take days.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_prep.files.atomic import put_in_place
from data_prep.shards.manifest import ShardError

CONTENT = "content"  # in the working folder; renamed to the finished folder at the end


@contextmanager
def complete_or_absent(folder: Path) -> Iterator[Path]:
    """Yield a new folder as `workplace_of`: renamed to `folder` at the end, removed on an error."""
    with workplace_of(folder, f".{folder.name}.partial") as workplace:
        try:
            shutil.rmtree(workplace / CONTENT, ignore_errors=True)  # of a process that was killed
            (workplace / CONTENT).mkdir()
            yield workplace / CONTENT
            put_in_place(workplace / CONTENT, folder)
        finally:
            shutil.rmtree(workplace, ignore_errors=True)


@contextmanager
def workplace_of(folder: Path, name: str = "") -> Iterator[Path]:
    """Yield a folder beside `folder`, in which it is built, locked for this process.

    It persists when the work fails or is killed, and the next call yields it again.

    Args:
        folder: Where the finished content is put.
        name: Of the folder beside it; default: "NAME.building".

    Raises:
        ShardError: `folder` exists, cannot be written, or is being built by another process.
    """
    workplace = folder.parent / (name or f"{folder.name}.building")
    try:
        if folder.exists() and (workplace / "lock").exists() and not (workplace / CONTENT).exists():
            shutil.rmtree(workplace)  # of a process that was killed when it was done
        refuse_existing(folder)
        workplace.mkdir(parents=True, exist_ok=True)
        with (workplace / "lock").open("a") as lock:
            try:
                # The kernel releases the lock when the process ends, however it ends.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise ShardError(
                    f"{folder}: another process is building it now; wait for it or "
                    "build into another folder"
                ) from None
            except OSError:  # there are no locks on this disk
                pass
            refuse_existing(folder)  # another process may have finished it before the lock
            yield workplace
    except OSError as error:
        raise ShardError(
            f"{folder}: cannot be written ({error.strerror or error}); free some space and give "
            "the same command again, or choose a folder with write permission"
        ) from error


def refuse_existing(folder: Path) -> None:
    """Refuse to write over an existing folder.

    Raises:
        ShardError: `folder` exists.
    """
    if folder.exists() or folder.is_symlink():
        raise ShardError(f"{folder}: exists already; remove it or choose another folder")
