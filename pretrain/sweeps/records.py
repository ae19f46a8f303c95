"""Records of a sweep of pre-training: what of it is small enough to commit.

A folder of records looks as that of the sweep. It holds, for each finished run, run.json,
launches.jsonl, evals.jsonl, result.json, and metrics.jsonl in fewer lines. So `tupelo compare`
reads a record as it reads a run, and a sweep that is resumed on another machine finds there which
runs are finished.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep.files.atomic import save_text
from pretrain.checkpoint.starting import RESULT_FILE, RUN_FILE
from pretrain.compare.run_files import DECISIONS, has_ended
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_lines
from pretrain.sweeps.folder import SETTINGS_FILE, SPEC_FILE, TRIALS

METRICS = "metrics.jsonl"
MOST_LINES = 40  # of metrics: enough for curves, and for the quartiles of the speed
# What ends a run is written last, as by the run: a record that has it is complete.
COPIED = (RUN_FILE, "launches.jsonl", "evals.jsonl", METRICS, DECISIONS, RESULT_FILE)

# Of an absolute path in JSON, all but its last name.
FOLDERS = re.compile(r"""(?<![\w.~/\\-])/(?:[^\s/:"\\]+/)+(?=[^\s/:"\\])""")


def bring(records: Path, folder: Path) -> None:
    """Copy into a sweep what it was started with, and runs that are finished there, not begun here.

    Raises:
        ConfigError: the folder holds another sweep, or cannot be written.
    """
    texts = [place / SETTINGS_FILE for place in (folder, records)]
    words = [text.read_text(encoding="utf-8").split("\0")[1:] for text in texts if text.is_file()]
    if len(words) > 1 and words[0] != words[1]:
        raise ConfigError(
            f"{records} has records of another sweep than {folder}; choose another --name, or the "
            "records of this one"
        )
    _copy(records, folder, (SPEC_FILE, SETTINGS_FILE))
    for file in [*records.glob(f"*/{RUN_FILE}"), *records.glob(f"{TRIALS}/*/{RUN_FILE}")]:
        record, run = file.parent, folder / file.parent.relative_to(records)
        if has_ended(record) and not (run / RUN_FILE).exists():
            _copy(record, run, (*COPIED[1:], RUN_FILE))  # which says that the run is there


def keep(records: Path, folder: Path, runs: Sequence[Path]) -> None:
    """Write what a sweep was started with, and a record of each of its runs that are finished.

    Raises:
        ConfigError: the records cannot be written.
    """
    _copy(folder, records, (SPEC_FILE, SETTINGS_FILE))
    for run in filter(has_ended, runs):
        _copy(run, records / run.relative_to(folder), COPIED)


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
    if file.name in (SETTINGS_FILE, SPEC_FILE):
        return text
    if file.name == METRICS:
        lines: list[dict[str, Any]] = read_json_lines(file)
        count = min(MOST_LINES, len(lines))  # evenly spaced, the last among them
        chosen = [lines[number * len(lines) // count - 1] for number in range(1, count + 1)]
        text = "".join(json.dumps(line) + "\n" for line in chosen)
    here = json.dumps(f"{Path.cwd()}/", ensure_ascii=False).strip('"')
    return FOLDERS.sub("", text.replace(here, ""))
