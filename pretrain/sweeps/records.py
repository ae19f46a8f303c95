"""Records of a sweep of pre-training: what of it is small enough to commit.

A folder of records looks as that of the sweep. It holds, for each finished run, run.json,
launches.jsonl, evals.jsonl, result.json, and metrics.jsonl in fewer lines. So `tupelo compare`
reads a record as it reads a run, and a sweep that is resumed on another machine finds there which
runs are finished.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.files.atomic import save_text
from pretrain.checkpoint.starting import RESULT_FILE, RUN_FILE
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_lines
from pretrain.reports.compare.run_files import DECISIONS
from pretrain.sweeps.plan import SweepRun, place_of

METRICS = "metrics.jsonl"
MOST_LINES = 40  # of metrics: enough for curves, and for the quartiles of the speed
# What ends a run is written last, as by the run: a record that has it is complete.
COPIED = (RUN_FILE, "launches.jsonl", "evals.jsonl", METRICS, DECISIONS, RESULT_FILE)

# Of an absolute path in JSON, all but its last name.
FOLDERS = re.compile(r"""(?<![\w.~/\\-])/(?:[^\s/:"\\]+/)+(?=[^\s/:"\\])""")


def bring(records: Path, folder: Path, runs: Iterable[SweepRun]) -> None:
    """Copy into a sweep those of its runs that are finished there, and not begun here.

    Raises:
        ConfigError: a record is of other settings, or the folder cannot be written.
    """
    for run in runs:
        record = _record(records, folder, run)
        if record.is_finished and not run.has_begun:
            record.refuse_other_settings()
            _copy(record.folder, run.folder, (*COPIED[1:], RUN_FILE))  # says that the run is there


def keep(records: Path, folder: Path, runs: Iterable[SweepRun]) -> None:
    """Write a record of each run of a sweep that is finished.

    Raises:
        ConfigError: the records cannot be written.
    """
    for run in runs:
        if run.is_finished:
            _copy(run.folder, _record(records, folder, run).folder, COPIED)


def _record(records: Path, folder: Path, run: SweepRun) -> SweepRun:
    place, arm = records / run.folder.relative_to(folder), run.folder.name
    place = place_of(place.parent, arm.removesuffix(f"-seed{run.seed}"), run.seed)
    return replace(run, folder=place)


def _copy(source: Path, target: Path, names: Sequence[str]) -> None:
    try:
        for name in names:
            if (source / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                save_text(target / name, _shortened(source / name))
    except OSError as error:
        raise ConfigError(f"cannot write into {target}: {error.strerror}; make room") from None


def _shortened(file: Path) -> str:
    """Return a file of a run without places of this machine, and metrics in `MOST_LINES`."""
    text = file.read_text(encoding="utf-8")
    if file.name == METRICS:
        lines: list[dict[str, Any]] = read_json_lines(file)
        count = min(MOST_LINES, len(lines))  # evenly spaced, the last among them
        chosen = [lines[number * len(lines) // count - 1] for number in range(1, count + 1)]
        text = "".join(json.dumps(line) + "\n" for line in chosen)
    here = json.dumps(f"{Path.cwd()}/", ensure_ascii=False).strip('"')
    return FOLDERS.sub("", text.replace(here, ""))
