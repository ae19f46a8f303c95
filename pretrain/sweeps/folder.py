"""The folder of a sweep of pre-training, and the lock of any sweep.

runs/NAME/settings               the command line of the sweep, each word ended by a NUL
runs/NAME/spec.toml              its spec, as it was when the sweep began
runs/NAME/ARM-seedN              a run folder for each seed; ARM where there is one seed
runs/NAME/trials/ARM-VALUE-seedN those of tuning
runs/NAME/report                 the comparison
"""

import errno
import fcntl
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from data_prep.files.atomic import save_text
from data_prep.files.program import shell_command
from pretrain.checkpoint.starting import RUN_FILE
from pretrain.config.errors import ConfigError

LOCK_FILE = "grid.lock"
REPORT, TRIALS = "report", "trials"  # beside the runs: folders
SETTINGS_FILE, SPEC_FILE = "settings", "spec.toml"
OTHERS = (REPORT, SETTINGS_FILE, SPEC_FILE, TRIALS)


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


class SweepFolder:
    """The folder of a sweep, `runs/NAME`."""

    def __init__(self, name: str) -> None:
        """Refuse a name that is no folder's.

        Raises:
            ConfigError: it has other characters than letters, digits, and . _ -
        """
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ConfigError(f"--name {name!r}: use letters, digits, and . _ - only")
        self.name, self.path = name, Path("runs") / name

    def refuse_if_taken(self) -> None:
        """Refuse to start where there is something already.

        Raises:
            ConfigError: the folder holds a sweep, a run, or anything else.
        """
        own = (SETTINGS_FILE, SPEC_FILE, LOCK_FILE)
        others = sorted(entry.name for entry in self.path.glob("*") if entry.name not in own)
        if others:
            raise ConfigError(
                f"{self.path} holds {others[0]}; continue a sweep with --resume --name "
                f"{self.name}, or choose another name"
            )

    def words(self) -> list[str]:
        """Return the command line that the sweep was started with.

        Raises:
            ConfigError: there is no sweep.
        """
        if (self.path / RUN_FILE).exists():
            command = shell_command("train", self.path, "--resume")
            raise ConfigError(f"{self.path} is a run, not a sweep; resume it with: {command}")
        file, spec = self.path / SETTINGS_FILE, self.path / SPEC_FILE
        if not file.is_file():
            raise ConfigError(f"there is no sweep {self.path} to resume; see runs/")
        words = file.read_text(encoding="utf-8").split("\0")[:-1]
        return [str(spec), *words[1:]] if spec.exists() else words

    def save(self, words: Sequence[str], spec: Path | None) -> None:
        """Save the words and the spec among them, for a sweep that is resumed."""
        if spec is not None:  # the copy is what a resume reads; another machine has no other
            save_text(self.path / SPEC_FILE, spec.read_text(encoding="utf-8"))
            words = [SPEC_FILE, *words[1:]]
        save_text(self.path / SETTINGS_FILE, "".join(f"{word}\0" for word in words))
