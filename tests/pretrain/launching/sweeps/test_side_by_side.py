"""Runs of a sweep on several GPUs: together, on GPUs of their own. The trainer is a stub."""

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.pretrain.launching.test_child import passed_on

SIZES = ("--data.sequence_length", "32", "--model.vocabulary_size", "256")


@pytest.fixture
def words(shards):
    return ("--name", "x", "--data.shards", str(shards), *SIZES)


def events(output):
    """Return the lines of a sweep that name a run, without the number."""
    return [line.partition("] ")[2] for line in output.splitlines() if line.startswith("[")]


def until(process, text):
    """Read the output of a process up to the line with a text."""
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return "".join(seen)
    raise AssertionError("".join(seen))


def test_as_many_runs_as_gpus_are_trained_at_once_each_on_one_of_its_own(stubs, words):
    """Each stub waits until three train."""
    stubs.gpus(4)
    arms = ("bert_a", "bert_r", "tupe_r")
    status, output, errors = stubs.run("sweep", *arms, *words, STUB_TOGETHER="3")
    assert status == 1 and "held_out" not in output, errors  # stubs leave nothing to compare
    assert len(stubs.calls("python -m pretrain train")) == 3
    assert sorted(stubs.visible()) == ["0", "0", "1", "2"]  # the first is a measurement
    lines = events(output)
    assert lines[:3] == [f"{arm}: starting in runs/x/{arm}" for arm in arms]
    assert sorted(lines[3:]) == [f"{arm}: finished, held-out loss 5.5000" for arm in arms]
    assert "3 at a time" in output


def test_more_runs_than_gpus_wait_for_one(stubs, words):
    stubs.gpus(2)
    _, output, _ = stubs.run("sweep", "bert_a", "tupe_r", *words, "--seeds", "3", STUB_TOGETHER="2")
    assert len(stubs.calls(" train ")) == 6
    running = most = 0
    for event in events(output):
        running += 1 if "starting" in event else -1
        most = max(most, running)
    assert (running, most) == (0, 2)


def test_gpus_are_divided_among_few_runs_and_each_has_a_port(stubs, words):
    stubs.gpus(8)
    stubs.run("sweep", "bert_a", "tupe_r", *words, STUB_TOGETHER="2")
    pattern = r"deepspeed --include localhost:([\d,]+) --master_port (\d+) --module pretrain train "
    found = [re.match(pattern, call) for call in stubs.calls(" train ")]
    assert {match[1] for match in found} == {"0,1,2,3", "4,5,6,7"}
    assert len({match[2] for match in found}) == 2
    assert (stubs.folder / "runs/x/gpus_per_run").read_text() == "4\n"


def test_a_run_has_as_many_gpus_when_it_is_resumed(stubs, words):
    stubs.gpus(8)
    arms = ("bert_a", "tupe_r")
    stubs.run("sweep", *arms, *words, STUB_NO_RESULT="1")
    stubs.log.unlink()
    stubs.gpus(3)
    status, output, errors = stubs.run("sweep", "--resume", "--name", "x")
    assert status == 1 and not stubs.calls(" train ")
    assert "each run was begun on 4 GPUs, and there are 3 here" in errors
    stubs.gpus(5)
    _, output, _ = stubs.run("sweep", "--resume", "--name", "x")
    assert "1 at a time" in output
    for call in stubs.calls(" train "):
        assert call.startswith("deepspeed --num_gpus 4 --master_port ")


def test_runs_that_have_not_begun_take_the_gpus_that_there_are(stubs, words):
    stubs.gpus(8)
    arms = ("bert_a", "tupe_r")
    stubs.run("sweep", *arms, *words, STUB_FAILS="* train *")
    assert (stubs.folder / "runs/x/gpus_per_run").read_text() == "4\n"
    stubs.log.unlink()
    stubs.gpus(2)
    stubs.run("sweep", "--resume", "--name", "x")
    assert len(stubs.calls("python -m pretrain train ")) == 2
    assert (stubs.folder / "runs/x/gpus_per_run").read_text() == "1\n"


@pytest.mark.parametrize(("gpus", "used"), [("2", {"0", "1"}), ("1", {"0"})])
def test_the_number_of_gpus_is_that_of_the_sweep_and_in_the_line_that_continues(
    stubs, words, gpus, used
):
    stubs.gpus(4)
    _, output, _ = stubs.run("sweep", "bert_a", "tupe_r", *words, "--gpus", gpus)
    assert f"continue with: tupelo sweep --resume --name x --gpus {gpus}\n" in output
    assert len(stubs.calls("python -m pretrain train ")) == 2 and set(stubs.visible()) == used


def test_a_sweep_on_several_machines_trains_one_run_after_the_other(stubs, words):
    stubs.gpus(4)
    (stubs.folder / "hosts").write_text("one slots=4\ntwo slots=4\n")
    _, output, _ = stubs.run("sweep", "bert_a", "tupe_r", *words, "--hostfile", "hosts")
    assert "1 at a time" in output
    assert len(stubs.calls("deepspeed --hostfile hosts --module pretrain train ")) == 2


def test_after_a_failure_no_run_is_started_and_the_others_finish(stubs, words):
    stubs.gpus(2)
    arms = ("bert_a", "bert_r", "tupe_r")
    process = stubs.start(
        "sweep", *arms, *words, STUB_FAILS="* train bert_a *", STUB_HELD="* train bert_r *"
    )
    seen = until(process, "failed")
    assert "bert_a: failed with status 3; output in runs/x/bert_a.log: " in seen
    Path(f"{stubs.log}.release").touch()
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    assert events(output) == ["bert_r: finished, held-out loss 5.5000"]
    assert "no more runs are started; waiting for 1 other run" in errors
    assert errors.endswith("Stopped. Continue with: tupelo sweep --resume --name x\n")
    assert len(stubs.calls(" train ")) == 2


def test_a_run_that_cannot_be_started_is_one_line_and_no_other_is_started(stubs, words):
    stubs.gpus(2)
    arms = ("bert_a", "bert_r", "tupe_r")
    stubs.run("sweep", *arms, *words, STUB_FAILS="* train *")
    stubs.log.unlink()
    file = stubs.folder / "runs/x/bert_r.log"
    file.unlink(missing_ok=True)
    file.mkdir()
    status, output, errors = stubs.run("sweep", "--resume", "--name", "x")
    assert status == 1 and "Traceback" not in errors
    assert "bert_a: finished, held-out loss 5.5000" in output
    *_, last = errors.splitlines()
    assert last.startswith("error: bert_r not started: ")
    assert last.endswith("continue with: tupelo sweep --resume --name x")
    assert len(stubs.calls(" train ")) == 1


def test_the_output_of_each_run_is_in_a_file_of_its_own(stubs, words):
    stubs.gpus(2)
    python = (stubs.bin / "python").read_text()
    says = 'case $call in *" train "*) echo "says $4"; echo "warns $4" >&2 ;; esac\n'
    stubs.program("python", python + says)
    _, output, errors = stubs.run("sweep", "bert_a", "tupe_r", *words)
    assert "says" not in output and "warns" not in errors
    for arm in ("bert_a", "tupe_r"):
        log = stubs.folder / f"runs/x/{arm}.log"
        assert sorted(log.read_text().splitlines()) == [f"says {arm}", f"warns {arm}"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_all_runs(stubs, words, number):
    stubs.gpus(2)
    arms = ("bert_a", "bert_r", "tupe_r")
    process = stubs.start_waiting("sweep", *arms, *words, count=2, STUB_WAITS="train")
    os.killpg(process.pid, number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert stubs.calls("heard") == [f"heard {passed_on(number)}"] * 2
    assert errors == "Stopped. Continue with: tupelo sweep --resume --name x\n"
    assert sorted(event.partition(";")[0] for event in events(output)[2:]) == [
        "bert_a: asked to stop",
        "bert_r: asked to stop",
    ]
    assert len(stubs.calls(" train ")) == 2


def test_a_killed_sweep_and_its_killed_runs_are_resumed(stubs, words):
    stubs.gpus(2)
    process = stubs.start_waiting("sweep", "bert_a", "tupe_r", *words, count=2, STUB_WAITS="train")
    children = psutil.Process(process.pid).children()
    for killed in (process, *children):
        killed.kill()
    process.communicate()
    stubs.log.unlink()
    _, output, _ = stubs.run("sweep", "--resume", "--name", "x", STUB_TOGETHER="2")
    assert len(stubs.calls(" train ")) == 2
    assert sum("finished, " in event for event in events(output)) == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
@pytest.mark.parametrize("asked", [None, "1"])
def test_on_processors_runs_share_the_threads(stubs, words, asked):
    """Each stub waits until two train."""
    python = (stubs.bin / "python").read_text()
    stubs.program("python", python + 'echo "threads $OMP_NUM_THREADS" >>"$CALLS"\n')
    variables = {} if asked is None else {"OMP_NUM_THREADS": asked}
    hidden = {"OMP_NUM_THREADS": ""} if asked is None else {}
    arms = ("bert_a", "bert_r", "tupe_r")
    _, output, _ = stubs.run(
        "sweep", *arms, *words, "--at-once", "2", STUB_TOGETHER="2", **variables, **hidden
    )
    share = asked or str(len(os.sched_getaffinity(0)) // 2)
    assert set(stubs.calls("threads")) == {f"threads {share}"}
    assert len(stubs.calls(" train ")) == 3
    assert "continue with: tupelo sweep --resume --name x --at-once 2\n" in output
    assert (stubs.folder / "runs/x/bert_a.log").exists()


@pytest.mark.parametrize(
    ("gpus", "options", "message"),
    [
        (2, ("--at-once", "3"), "--at-once 3: there are 2 GPUs for these runs"),
        (0, ("--at-once", "999"), "processors for these runs; ask for fewer"),
        (0, ("--at-once", "0"), "0: give a number of runs, such as 2"),
    ],
)
def test_more_at_once_than_there_is_room_for_is_refused(stubs, words, gpus, options, message):
    stubs.gpus(gpus)
    status, _, errors = stubs.run("sweep", "bert_a", "tupe_r", *words, *options)
    assert status == 1 and message in errors and not stubs.calls(" train ")


def test_fewer_runs_at_once_have_more_gpus_each(stubs, words):
    stubs.gpus(4)
    stubs.run("sweep", "bert_a", "bert_r", "tupe_r", *words, "--at-once", "2", STUB_TOGETHER="2")
    for call in stubs.calls(" train "):
        assert re.match(r"deepspeed --include localhost:(0,1|2,3) ", call)
