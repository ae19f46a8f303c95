"""The folder of a sweep of pre-training, and the lock of any sweep.

runs/NAME/ARM-seedN              a run folder for each seed
runs/NAME/trials/ARM-VALUE-seedN those of tuning
runs/NAME/report                 the comparison
"""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_prep.files.atomic import remove_strays
from pretrain.config.errors import ConfigError

LOCK_FILE = "grid.lock"
REPORT, TRIALS = "report", "trials"  # beside the runs: folders


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
            remove_strays(folder)
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ConfigError(
                f"cannot write into {folder}: {error.strerror}; make room, and continue the sweep"
            ) from None
