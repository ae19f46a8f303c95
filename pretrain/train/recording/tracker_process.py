"""A process beside a run that sends its metrics to an experiment tracker.

It reads the lines of the run folder, so that neither a network that hangs nor an error of the
tracker reaches training. What was not sent when a launch ended is sent by the next one.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep.files.atomic import save_text
from data_prep.files.program import own_packages_first
from pretrain.config.json_objects import read_json_lines, read_json_object
from pretrain.config.recipe import load_settings
from pretrain.config.settings import RunSettings
from pretrain.train.recording.scalars import Scalars
from pretrain.train.recording.trackers import TRACKERS, Tracker

POLL_SECONDS = 1.0
RETRY_SECONDS = 30.0
LAST_LINES_SECONDS = 30.0  # how long the end of a run waits for the tracker
LONGEST_REASON = 200
FILES = ("metrics", "evals")


class TrackerProcesses:
    """The processes of a launch, one for each tracker."""

    def __init__(self, folder: Path, settings: RunSettings) -> None:
        """Start them; the run folder must describe the launch already."""
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        for name in TRACKERS:
            if name not in settings.loggers:
                continue
            command = [
                sys.executable,
                "-m",
                "pretrain.train.recording.tracker_process",
                str(folder),
                name,
            ]
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=2,  # stderr: the output of a command is its own
                    env=own_packages_first(os.environ),
                    start_new_session=True,  # a terminal's Ctrl-C ends the run, which ends this
                )
            except OSError as error:
                _warn(name, error, "nothing is sent")
            else:
                self._running.append((name, process))

    def close(self) -> None:
        """Let them send the last lines, and wait for them for a while."""
        deadline = time.monotonic() + LAST_LINES_SECONDS
        for _, process in self._running:
            assert process.stdin is not None
            process.stdin.close()
        for name, process in self._running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(
                    f"warning: {name} has not taken all metrics within {LAST_LINES_SECONDS:.0f} s; "
                    f"process {process.pid} goes on sending them",
                    file=sys.stderr,
                )
        self._running.clear()


class Sender:
    """Sends the lines of a run folder that a tracker does not have yet."""

    def __init__(self, folder: Path, name: str, tracker: Tracker, scalars: Scalars) -> None:
        """Begin after the lines that an earlier launch has sent."""
        self._folder, self._name, self._tracker = folder, name, tracker
        self._numbers = {"metrics": scalars.of_metrics, "evals": scalars.of_evaluation}
        counts = _read_state(folder, name).get("lines", {})
        self._sent = {file: self._hashes(file)[: counts.get(file, 0)] for file in FILES}
        self._save()

    def send_new(self) -> None:
        """Send the lines after those that were sent; after a rewind, those after its step.

        Raises:
            Exception: whatever the tracker raises; the lines are sent by the next call.
        """
        points: dict[int, dict[str, float]] = {}
        sent = {}
        for file in FILES:
            sent[file] = self._hashes(file)
            pairs = zip(sent[file], self._sent[file], strict=False)
            known = next((i for i, (now, before) in enumerate(pairs) if now != before), None)
            if known is None:
                known = min(len(sent[file]), len(self._sent[file]))
            if known == len(sent[file]):
                continue
            records = read_json_lines(self._folder / f"{file}.jsonl")[known : len(sent[file])]
            for record in records:
                points.setdefault(record["step"], {}).update(self._numbers[file](record))
        for step, scalars in sorted(points.items()):
            self._tracker.send(step, scalars)
        if sent != self._sent:
            self._sent = sent
            self._save()

    def _hashes(self, file: str) -> list[int]:
        path = self._folder / f"{file}.jsonl"
        return [hash(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def _save(self) -> None:
        lines = {file: len(sent) for file, sent in self._sent.items()}
        state = {"id": self._tracker.id, "lines": lines}
        _state_file(self._folder, self._name).parent.mkdir(exist_ok=True)
        save_text(_state_file(self._folder, self._name), json.dumps(state) + "\n")


def main(words: Sequence[str]) -> None:
    """Send the metrics of a run until it ends. Words: run folder, name of the tracker."""
    folder, name = Path(words[0]), words[1]
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # they are for the run
    os.nice(10)
    settings, launch = load_settings(folder), read_json_lines(folder / "launches.jsonl")[-1]
    try:
        known = _read_state(folder, name).get("id")
        tracker = TRACKERS[name](folder, settings, known)
        sender = Sender(folder, name, tracker, Scalars(settings, launch))
    except Exception as error:  # of other libraries and the network: no list of them is complete
        _warn(name, error, "this launch sends nothing; metrics.jsonl and metrics.csv have it all")
        return
    _follow(sender, name, parent)
    try:
        tracker.finish(complete=(folder / "result.json").exists())
    except Exception as error:
        _warn(name, error, "the end of the run is not recorded there")


def _follow(sender: Sender, name: str, parent: int) -> None:
    has_warned, is_over, retry_at = False, False, 0.0
    while not is_over:
        is_over = bool(select.select([0], [], [], POLL_SECONDS)[0]) or os.getppid() != parent
        if time.monotonic() < retry_at and not is_over:
            continue
        try:
            sender.send_new()
        except Exception as error:
            retry_at = time.monotonic() + RETRY_SECONDS
            if not has_warned:
                _warn(name, error, "it is tried again, at the latest when the run is resumed")
            has_warned = True


def _state_file(folder: Path, name: str) -> Path:
    return folder / "trackers" / f"{name}.json"


def _read_state(folder: Path, name: str) -> dict[str, Any]:
    file = _state_file(folder, name)
    return read_json_object(file) if file.exists() else {}


def _warn(name: str, error: Exception, consequence: str) -> None:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[0] if len(lines[0]) <= LONGEST_REASON else f"{lines[0][:LONGEST_REASON]}..."
    # One write: the run and its progress bar write to the same stream.
    sys.stderr.write(f"\nwarning: {name}: {reason}; {consequence}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
