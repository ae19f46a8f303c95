"""The records of a sweep: what a comparison reads of each finished run, small enough to commit.

A folder of records looks like that of the sweep, `runs/NAME`: what the sweep was started with, and
for each finished run a folder with run.json, launches.jsonl, evals.jsonl, result.json, and
metrics.jsonl in fewer lines. So `tupelo compare` reads a record as it reads a run, and a sweep that
is resumed on another machine finds there which runs are finished.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data_prep.files.atomic import save_text
from pretrain.checkpoint.starting import RESULT_FILE, RUN_FILE
from pretrain.compare.run_files import DECISIONS, has_ended
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_lines
from pretrain.launching.sweeps.arms import SweepRun
from pretrain.launching.sweeps.folder import SETTINGS_FILE, SPEC_FILE, TRIALS, SweepFolder

METRICS = "metrics.jsonl"
MOST_LINES = 40  # of metrics: enough for curves, and for the quartiles of the speed

COPIED = (RUN_FILE, "launches.jsonl", "evals.jsonl")
# What ends a run is written last, as by the run: a record that has it is complete.
ENDS = (DECISIONS, RESULT_FILE)

# Of an absolute path in JSON, all but its last name.
FOLDERS = re.compile(r"""(?<![\w.~/\\-])/(?:[^\s/:"\\]+/)+(?=[^\s/:"\\])""")


class Records:
    """The folder of records of one sweep."""

    def __init__(self, path: Path, sweep: SweepFolder) -> None:
        """Prepare; nothing is read or written."""
        self.path, self._sweep = path, sweep

    def refuse_if_taken(self) -> None:
        """Refuse to begin a sweep where there are records already.

        Raises:
            ConfigError: the folder is not empty.
        """
        if any(self.path.glob("*")):
            raise ConfigError(
                f"--records {self.path} is not empty; continue its sweep with --resume, or choose "
                "another folder"
            )

    def bring(self) -> None:
        """Copy into the folder of the sweep what it lacks.

        Raises:
            ConfigError: it cannot be written, its sweep is another one, or a run was begun there
                that is finished here.
        """
        self._refuse_another_sweep()
        for name in (SETTINGS_FILE, SPEC_FILE):
            self._copy(self.path / name, self._sweep.path / name)
        for pattern in ("*", f"{TRIALS}/*"):
            for record in sorted(self.path.glob(pattern)):
                run = self._sweep.path / record.relative_to(self.path)
                goes_on = (run / RUN_FILE).exists() and not (record / RESULT_FILE).exists()
                if has_ended(record) and not has_ended(run) and not goes_on:
                    self._bring_run(record, run)

    def keep(self, runs: Sequence[SweepRun]) -> None:
        """Write what the sweep was started with, and the finished runs that have no record.

        Raises:
            ConfigError: the folder cannot be written.
        """
        for name in (SETTINGS_FILE, SPEC_FILE):
            self._copy(self._sweep.path / name, self.path / name)
        for run in runs:
            record = self.path / run.folder.relative_to(self._sweep.path)
            if run.is_finished and not _ends_alike(run.folder, record):
                self._keep_run(run.folder, record)

    def _refuse_another_sweep(self) -> None:
        ours, theirs = (_definition(path) for path in (self._sweep.path, self.path))
        if ours is not None and theirs is not None and ours != theirs:
            raise ConfigError(
                f"{self.path} has records of another sweep than {self._sweep.path}; choose another "
                "--name, or the records of this one"
            )

    def _bring_run(self, record: Path, run: Path) -> None:
        if (run / RUN_FILE).exists():
            raise ConfigError(
                f"{run} was begun here, and {record} is finished: remove {run} to take the record"
            )
        for name in (*COPIED, METRICS, *ENDS):
            self._copy(record / name, run / name)

    def _keep_run(self, run: Path, record: Path) -> None:
        for name in ENDS:  # of a run that had diverged, and was continued
            (record / name).unlink(missing_ok=True)
        for name in COPIED:
            self._copy(run / name, record / name, without_places)
        lines = thinned(read_json_lines(run / METRICS))
        text = "".join(json.dumps(line) + "\n" for line in lines)
        _save(record / METRICS, text)
        for name in ENDS:
            self._copy(run / name, record / name, without_places)

    @staticmethod
    def _copy(source: Path, target: Path, change: Callable[[str], str] = str) -> None:
        if source.is_file():
            text = change(source.read_text(encoding="utf-8"))
            if not target.is_file() or target.read_text(encoding="utf-8") != text:
                _save(target, text)


def _ends_alike(run: Path, record: Path) -> bool:
    """Return whether a record has what ended a run; one that diverged may have been continued."""
    ends = [name for name in ENDS if (run / name).is_file()]
    return all(
        (record / name).is_file()
        and (record / name).read_text(encoding="utf-8")
        == without_places((run / name).read_text(encoding="utf-8"))
        for name in ends
    )


def without_places(text: str) -> str:
    """Return JSON in which absolute paths are relative ones, or names: they are of one machine."""
    here = json.dumps(f"{Path.cwd()}/", ensure_ascii=False).strip('"')
    return FOLDERS.sub("", text.replace(here, ""))


def thinned(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most `MOST_LINES` of the lines, evenly spaced, the last among them."""
    count = min(MOST_LINES, len(lines))
    return [lines[number * len(lines) // count - 1] for number in range(1, count + 1)]


def _definition(folder: Path) -> list[bytes] | None:
    """Return what a sweep was started with, without the place of its spec; None: nothing is."""
    settings, spec = folder / SETTINGS_FILE, folder / SPEC_FILE
    if not settings.is_file():
        return None
    words = settings.read_bytes().split(b"\0")
    return [spec.read_bytes(), *words[1:]] if spec.is_file() else words


def _save(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_text(file, text)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; make room there") from None
