"""The folder of a sweep: one process at a time fills it."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_prep.files.atomic import save_text
from pretrain.config.errors import ConfigError

LOCK_FILE = "grid.lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder and lock it against other sweeps; the lock ends with this process.

    Raises:
        ConfigError: another process holds the lock, the folder cannot be written, or the disk
            becomes full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK_FILE).open("w")
    except OSError as error:
        raise ConfigError(
            f"cannot write into {folder}: {error.strerror}; choose another folder"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process is running a sweep in {folder}; wait for it, or choose another "
                "folder"
            ) from None
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ConfigError(
                f"cannot write into {folder}: {error.strerror}; make room, and continue the sweep"
            ) from None


def save_changed(file: Path, text: str) -> None:
    """Write a file, with the folders above it, unless it holds this text.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_text(file, text)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; make room there") from None
