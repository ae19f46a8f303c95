"""The folder of a sweep: its runs, what they were started with, and the report."""

import re
from collections.abc import Sequence
from pathlib import Path

from data_prep.files.atomic import save_text
from data_prep.files.program import shell_command
from pretrain.checkpoint.starting import RUN_FILE
from pretrain.config.errors import ConfigError

# Beside the runs: the folder of the comparison, and files.
REPORT, SETTINGS_FILE, GPUS_FILE = "report", "settings", "gpus_per_run"
SPEC_FILE = "spec.toml"  # as it was when the sweep began
TRIALS = "trials"  # of tuning: a folder of runs
OTHERS = (REPORT, SETTINGS_FILE, GPUS_FILE, SPEC_FILE, TRIALS)


class SweepFolder:
    """The folder of a sweep: the runs, what they were started with, and the report."""

    def __init__(self, name: str) -> None:
        """Refuse a name that is no folder's.

        Raises:
            ConfigError: it has other characters than letters, digits, and . _ -
        """
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ConfigError(f"--name {name!r}: use letters, digits, and . _ - only")
        self.name, self.path = name, Path("runs") / name
        self._file = self.path / SETTINGS_FILE  # the words of the sweep, each ended by a NUL
        self._gpus_file, self._spec = self.path / GPUS_FILE, self.path / SPEC_FILE
        self._own = (self._file, self._gpus_file, self._spec)

    def resume_command(self, launch_words: Sequence[str]) -> str:
        """Return the line that continues the sweep, on the same GPUs."""
        return shell_command("sweep", "--resume", "--name", self.name, *launch_words)

    def check_is_new(self) -> None:
        """Refuse to start where there is something already.

        Raises:
            ConfigError: the folder holds a sweep, a run, or anything else.
        """
        others = [entry for entry in self.path.glob("*") if entry not in self._own]
        if self.has_begun or (others and self._file.exists()):
            raise ConfigError(
                f"{self.path} holds a comparison; continue it with --resume --name {self.name}, or "
                "choose another name"
            )
        if others:
            raise ConfigError(
                f"{self.path} holds {min(others).name}, which is no part of a comparison; choose "
                "another name"
            )

    @property
    def has_begun(self) -> bool:
        """Whether a run was started in it."""
        patterns = (f"*/{RUN_FILE}", f"{TRIALS}/*/{RUN_FILE}")
        return any(True for pattern in patterns for _ in self.path.glob(pattern))

    def saved_words(self) -> list[str]:
        """Return the words that the sweep was started with.

        Raises:
            ConfigError: there is no sweep.
        """
        if (self.path / RUN_FILE).exists():
            command = shell_command("train", self.path, "--resume")
            raise ConfigError(f"{self.path} is a run, not a comparison; resume it with: {command}")
        if not self._file.exists():
            raise ConfigError(f"there is no comparison {self.path} to resume; see runs/")
        words = self._file.read_text().split("\0")[:-1]
        # The first word is the path of the spec, which may lie elsewhere on another machine.
        return [str(self._spec), *words[1:]] if self._spec.exists() else words

    def save(self, words: Sequence[str], spec: Path | None) -> None:
        """Save the words and the spec among them, for a sweep that is resumed.

        Raises:
            ConfigError: the folder cannot be written.
        """
        if spec is not None and spec.resolve() != self._spec.resolve():
            self._save(self._spec, spec.read_text(encoding="utf-8"))
        if spec is not None:  # the copy is what a resume reads; another machine has no other
            words = [SPEC_FILE, *words[1:]]
        self._save(self._file, "".join(f"{word}\0" for word in words))

    def forget_words(self) -> None:
        """Remove them, and the folder, of a sweep in which nothing was started."""
        if not self.has_begun:
            for file in self._own:
                file.unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def gpus_per_run(self) -> int | None:
        """Return how many GPUs each run has; None: no run has begun, or this is not saved."""
        if not self.has_begun or not self._gpus_file.exists():
            return None
        text = self._gpus_file.read_text().strip()
        if not text.isdecimal() or int(text) == 0:
            raise ConfigError(f"{self._gpus_file} holds {text!r}, not a number of GPUs; remove it")
        return int(text)

    def save_gpus_per_run(self, count: int) -> None:
        """Save it, for a sweep that is resumed: a run continues on as many ranks only.

        Raises:
            ConfigError: the folder cannot be written.
        """
        self._save(self._gpus_file, f"{count}\n")

    def _save(self, file: Path, text: str) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            save_text(file, text)
        except OSError as error:
            raise ConfigError(
                f"cannot write {file}: {error.strerror}; make room there, or start in a folder "
                "that can be written"
            ) from None
