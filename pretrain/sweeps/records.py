"""The folder of a pre-training sweep, and its records: what is small enough to commit.

runs/NAME/settings               the command line of the sweep, each word ended by a NUL
runs/NAME/spec.toml              its spec, as it was when the sweep began
runs/NAME/ARM-seedN              a run folder for each seed; ARM where there is one seed
runs/NAME/trials/ARM-VALUE-seedN those of tuning
runs/NAME/report                 the comparison

A folder of records looks the same. It holds, for each finished run, run.json, launches.jsonl,
evals.jsonl, result.json, and metrics.jsonl in fewer lines. So `tupelo compare` reads a record as it
reads a run, and a sweep that is resumed on another machine finds there which runs are finished.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data_prep.files.program import shell_command
from pretrain.checkpoint.starting import RESULT_FILE, RUN_FILE
from pretrain.compare.run_files import DECISIONS, has_ended
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_lines
from pretrain.sweeps.folder import LOCK_FILE, save_changed
from pretrain.sweeps.runs import SweepRun

REPORT, TRIALS = "report", "trials"  # beside the runs: folders
SETTINGS_FILE, SPEC_FILE = "settings", "spec.toml"
OTHERS = (REPORT, SETTINGS_FILE, SPEC_FILE, TRIALS)

LAUNCHES, METRICS = "launches.jsonl", "metrics.jsonl"
MOST_LINES = 40  # of metrics: enough for curves, and for the quartiles of the speed
COPIED = (RUN_FILE, LAUNCHES, "evals.jsonl")
# What ends a run is written last, as by the run: a record that has it is complete.
ENDS = (DECISIONS, RESULT_FILE)

# Of an absolute path in JSON, all but its last name.
FOLDERS = re.compile(r"""(?<![\w.~/\\-])/(?:[^\s/:"\\]+/)+(?=[^\s/:"\\])""")


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
        words, spec = definition(self.path), self.path / SPEC_FILE
        if words is None:
            raise ConfigError(f"there is no sweep {self.path} to resume; see runs/")
        return [str(spec), *words[1:]] if spec.exists() else words

    def save(self, words: Sequence[str], spec: Path | None) -> None:
        """Save the words and the spec among them, for a sweep that is resumed.

        Raises:
            ConfigError: the folder cannot be written.
        """
        if spec is not None:  # the copy is what a resume reads; another machine has no other
            save_changed(self.path / SPEC_FILE, spec.read_text(encoding="utf-8"))
            words = [SPEC_FILE, *words[1:]]
        save_changed(self.path / SETTINGS_FILE, "".join(f"{word}\0" for word in words))

    def gpus_per_run(self) -> int | None:
        """Return how many processes its runs have, which go on with as many; None: none goes on.

        Raises:
            ConfigError: a file of a run is damaged.
        """
        for pattern in (f"*/{LAUNCHES}", f"{TRIALS}/*/{LAUNCHES}"):
            for file in self.path.glob(pattern):
                if not has_ended(file.parent):
                    for launch in read_json_lines(file)[-1:]:
                        return int(launch["world_size"])
        return None


def definition(folder: Path) -> list[str] | None:
    """Return the words that a sweep was started with; None: there is none in this folder."""
    file = folder / SETTINGS_FILE
    return file.read_text(encoding="utf-8").split("\0")[:-1] if file.is_file() else None


def bring_definition(records: Path, folder: Path) -> None:
    """Copy what a sweep was started with from its records, where the folder of the sweep lacks it.

    Raises:
        ConfigError: the folder cannot be written, or holds another sweep.
    """
    ours, theirs = definition(folder), definition(records)
    if ours is None:
        _copy(records, folder, (SPEC_FILE, SETTINGS_FILE))
    elif theirs is not None and ours[1:] != theirs[1:]:
        raise ConfigError(
            f"{records} has records of another sweep than {folder}; choose another --name, or the "
            "records of this one"
        )


def bring(records: Path, folder: Path, runs: Sequence[SweepRun]) -> None:
    """Copy the records of runs that are finished there, and not here, into the sweep.

    Raises:
        ConfigError: the folder cannot be written, a record has other settings, or a run was begun
            here that is finished there.
    """
    for run in runs:
        record = records / run.folder.relative_to(folder)
        if run.is_finished or not has_ended(record):
            continue
        run.refuse_other_settings(record)
        if not run.has_begun:
            _copy(record, run.folder, (*COPIED, METRICS, *ENDS))
        elif (record / RESULT_FILE).exists():  # else it diverged, and goes on here
            raise ConfigError(
                f"{run.folder} was begun here, and {record} is finished: remove {run.folder} to "
                "take the record"
            )


def keep(records: Path, folder: Path, runs: Sequence[SweepRun]) -> None:
    """Write what the sweep was started with, and a record of each run that is finished.

    Raises:
        ConfigError: the folder cannot be written.
    """
    _copy(folder, records, (SPEC_FILE, SETTINGS_FILE))
    for run in runs:
        record = records / run.folder.relative_to(folder)
        if run.is_finished:
            _copy(run.folder, record, COPIED, without_places)
            lines = thinned(read_json_lines(run.folder / METRICS))
            save_changed(record / METRICS, "".join(json.dumps(line) + "\n" for line in lines))
            _copy(run.folder, record, ENDS, without_places)


def _copy(
    source: Path, target: Path, names: Sequence[str], change: Callable[[str], str] = str
) -> None:
    for name in names:
        if (source / name).is_file():
            save_changed(target / name, change((source / name).read_text(encoding="utf-8")))


def without_places(text: str) -> str:
    """Return JSON in which absolute paths are relative ones, or names: they are of one machine."""
    here = json.dumps(f"{Path.cwd()}/", ensure_ascii=False).strip('"')
    return FOLDERS.sub("", text.replace(here, ""))


def thinned(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most `MOST_LINES` of the lines, evenly spaced, the last among them."""
    count = min(MOST_LINES, len(lines))
    return [lines[number * len(lines) // count - 1] for number in range(1, count + 1)]
