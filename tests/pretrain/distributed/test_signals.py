"""Signals: what a process does, and whole runs that are stopped and resumed."""

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pretrain.distributed.processes import STARTER
from pretrain.distributed.signals import ECHO_SECONDS, SIGNALS, Interruption, silence_unread_output
from tests.forked_command import start_module
from tests.pretrain.conftest import ROOT

FAR = 1_000_000
WORDS = ("--steps", FAR, "--checkpoint.every_steps", FAR)

# A process that is asked to stop while its main thread waits.
WAITING = """
import sys, time
from pretrain.distributed.signals import Interruption

with Interruption(prints=True) as interruption:
    stage = sys.argv[1]
    if stage != "set-up":
        interruption.begin_training()
    if stage == "leaving":
        interruption.leave()
    print("ready", flush=True)
    sys.stdin.read() if stage != "loop" else None
    while interruption.cause is None:
        time.sleep(0.01)
    print("stops:", interruption.cause, flush=True)
"""


class Waiting:
    """A process that runs WAITING in one of its stages."""

    def __init__(self, stage, *above):
        self.process = subprocess.Popen(
            [*above, sys.executable, "-c", WAITING, stage],
            cwd=ROOT,
            text=True,
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # under nohup too
        )
        assert self.process.stdout.readline() == "ready\n"

    def send(self, number):
        self.process.send_signal(number)

    def end(self):
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output.strip(), errors.strip()


@pytest.mark.parametrize("number", sorted(SIGNALS))
def test_a_signal_in_training_is_noted(number):
    waiting = Waiting("loop")
    waiting.send(number)
    status, output, errors = waiting.end()
    assert (status, output) == (0, f"stops: {number.name}")
    assert errors == f"{number.name}: saving after this step; a second signal ends at once"


def test_under_nohup_a_closed_terminal_stops_nothing():
    waiting = Waiting("loop", "nohup")
    waiting.send(signal.SIGHUP)
    time.sleep(0.2)
    waiting.send(signal.SIGTERM)
    assert waiting.end()[:2] == (0, "stops: SIGTERM")


def test_a_signal_before_training_ends_the_process_at_once_with_one_line():
    waiting = Waiting("set-up")
    waiting.send(signal.SIGTERM)
    status, _, errors = waiting.end()
    assert status == 128 + signal.SIGTERM
    assert errors == "stopped before the first step (SIGTERM); there is nothing to save"


@pytest.mark.parametrize("stage", ["training", "leaving"])
def test_a_second_signal_ends_a_process_and_neither_an_echo_nor_a_repetition_does(stage):
    waiting = Waiting(stage)
    waiting.send(signal.SIGINT)
    time.sleep(ECHO_SECONDS / 10)  # the launcher passes Ctrl-C on
    waiting.send(signal.SIGTERM)
    time.sleep(1.5 * ECHO_SECONDS)
    assert waiting.process.poll() is None
    waiting.send(signal.SIGUSR1)  # which `tupelo` repeats
    time.sleep(0.2)
    assert waiting.process.poll() is None
    waiting.send(signal.SIGTERM)
    waiting.process.wait(60)  # before its input is closed, over which it would end by itself
    status, _, errors = waiting.end()
    assert status == 128 + signal.SIGTERM
    assert errors.splitlines()[-1] == "SIGTERM: ended at once"


def test_the_handlers_of_before_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Interruption(prints=True):
        assert signal.getsignal(signal.SIGINT) not in before
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.parametrize("variable", ["RANK", STARTER])
def test_the_end_of_what_started_a_process_stops_it(monkeypatch, variable):
    """A launcher, or a process of ours above the launcher."""
    start = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    above = subprocess.Popen(["sleep", "60"]) if variable == STARTER else None
    monkeypatch.setenv(variable, "0" if above is None else str(above.pid))
    waiting = Waiting("loop", sys.executable, "-c", start)
    (rank,) = psutil.Process(waiting.process.pid).children()
    killed = waiting.process if above is None else above
    killed.kill()
    killed.wait()
    assert waiting.process.stdout.readline() == "stops: the process that started it is gone\n"
    psutil.wait_procs([rank], timeout=60)
    waiting.end()


def test_a_process_that_was_started_from_outside_its_container_goes_on(monkeypatch):
    monkeypatch.setenv(STARTER, "0")  # what the kernel shows of it
    assert Interruption(prints=False).cause is None


def test_output_without_a_reader_is_discarded_and_other_output_is_kept():
    reader, writer = os.pipe()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    try:
        os.dup2(writer, 1)
        silence_unread_output()
        os.write(1, b"read")
        assert os.read(reader, 10) == b"read"
        os.close(reader)
        silence_unread_output()
        os.write(1, b"not read")  # BrokenPipeError, if it still were the pipe
    finally:
        for descriptor, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, descriptor)


# ---- whole runs


def has_step(folder, step):
    file, wanted = folder / "metrics.jsonl", f'"step": {step},'
    return file.exists() and wanted in file.read_text()


def step_of(output, folder):
    """Return the step at which the run says that it stopped."""
    (line,) = re.findall(r"^stopped at step .*$", output, re.MULTILINE)
    assert f"train {folder} --resume" in line and "saved; resume with: " in line
    return int(line.split()[3])


def test_a_run_whose_whole_group_is_signalled_saves_and_says_how_to_go_on(command, tmp_path):
    """As Ctrl-C does it. How it goes on, tests/faults show."""
    folder = tmp_path / "run"
    words = command.words("--run-folder", folder, *WORDS)
    started = start_module("pretrain", words, files=[(tmp_path / "out", tmp_path / "errors")])
    assert started.wait_until(lambda: has_step(folder, 5))
    run = psutil.Process(started.processes[0].pid)
    for process in [*run.children(), run]:
        process.send_signal(signal.SIGINT)
    assert started.wait() == [0], started.output
    output, errors = (file.read_text() for file in started.files)
    assert "Traceback" not in errors and errors.count("SIGINT: saving") == 1
    stopped_at = step_of(output, folder)
    assert stopped_at >= 5 and "(SIGINT), saved" in output
    assert (folder / "checkpoints" / f"step_{stopped_at:08d}").is_dir()


def test_a_stop_whose_checkpoint_cannot_be_written_is_one_error(command, tmp_path):
    words = command.words("--run-folder", tmp_path / "run", *WORDS)
    ranks = start_module("pretrain", words, 2, files=[(tmp_path / "out",) * 2] * 2)
    assert ranks.wait_until(lambda: has_step(tmp_path / "run", 5))
    (tmp_path / "run" / "checkpoints").write_text("in the way")
    ranks.send(signal.SIGINT, rank=1)
    assert ranks.wait() == [1, 1] and ranks.output.count("the last checkpoint, of step ") == 1
