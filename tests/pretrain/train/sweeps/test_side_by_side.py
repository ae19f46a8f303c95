"""Runs of a sweep on several GPUs: together, on GPUs of their own. The trainer is a stub."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.pretrain.train.sweeps.conftest import SIZES

TWO = ("bert_a", "tupe_r", "--name", "x")


def events(output):
    """Return the lines of a sweep that name a run, without the number."""
    return [line.partition("] ")[2] for line in output.splitlines() if line.startswith("[")]


def test_as_many_runs_as_gpus_are_trained_at_once_each_on_one_of_its_own(
    here, run, monkeypatch, capsys
):
    """Each stub waits until three train."""
    here.gpus(4)
    monkeypatch.setenv("STUB_TOGETHER", "3")
    arms = ("bert_a", "bert_r", "tupe_r")
    run(*arms, "--name", "x")
    assert len(here.calls("python -m pretrain train")) == 3
    assert sorted(here.visible()) == ["0", "0", "0", "0", "1", "2"]  # three were measured
    output = capsys.readouterr().out
    lines = events(output)
    assert lines[:3] == [f"{arm}-seed0: starting in runs/x/{arm}-seed0" for arm in arms]
    assert sorted(lines[3:]) == [f"{arm}-seed0: finished, held-out loss 5.5000" for arm in arms]
    assert "3 at a time" in output


def test_gpus_are_divided_among_few_runs_and_each_has_a_port(here, run):
    here.gpus(8)
    run(*TWO)
    pattern = r"deepspeed --include localhost:([\d,]+) --master_port (\d+) --module pretrain train "
    found = [re.match(pattern, call) for call in here.calls(" train ")]
    assert {match[1] for match in found} == {"0,1,2,3", "4,5,6,7"}
    assert len({match[2] for match in found}) == 2


def test_a_run_that_fails_beside_others_fails_alone_and_each_has_a_file_for_its_output(
    here, run, monkeypatch, capfd
):
    here.gpus(2)
    says = 'case $call in *" train "*) echo "says $4"; echo "warns $4" >&2 ;; esac\n'
    here.program("python", (here.bin / "python").read_text() + says)
    monkeypatch.setenv("STUB_FAILS", "* train bert_a *")
    with pytest.raises(SystemExit) as end:
        run("bert_a", "bert_r", "tupe_r", "--name", "x")
    output, errors = capfd.readouterr()
    assert end.value.code == 3 and "1 run failed; the others have ended" in errors
    ends = sorted(event for event in events(output) if "starting" not in event)
    assert (
        ends[0] == "bert_a-seed0: failed with status 3; it wrote nothing (runs/x/bert_a-seed0.log)"
    )
    assert [end.partition(":")[0] for end in ends[1:]] == ["bert_r-seed0", "tupe_r-seed0"]
    assert "says" not in output and "warns" not in errors
    lines = Path("runs/x/tupe_r-seed0.log").read_text().splitlines()
    assert sorted(lines) == ["says tupe_r", "warns tupe_r"]


def test_a_signal_reaches_all_runs_and_no_other_is_started(stubs, shards):
    stubs.gpus(2)
    words = ("bert_a", "bert_r", "tupe_r", "--name", "x", "--data.shards", shards, *SIZES)
    process = stubs.start_waiting("sweep", *words, count=2, STUB_WAITS="train")
    os.killpg(process.pid, signal.SIGUSR1)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert stubs.calls("heard") == ["heard TERM"] * 2  # launchers know no others
    assert errors.startswith("Stopped. Continue with: tupelo sweep bert_a bert_r tupe_r ")
    assert sorted(event.partition(";")[0] for event in events(output)[2:]) == [
        "bert_a-seed0: asked to stop",
        "bert_r-seed0: asked to stop",
    ]
    assert len(stubs.calls(" train ")) == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_on_processors_runs_share_the_threads(here, run, monkeypatch, capsys):
    """Each stub waits until two train."""
    python = (here.bin / "python").read_text()
    here.program("python", python + 'echo "threads $OMP_NUM_THREADS" >>"$CALLS"\n')
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("STUB_TOGETHER", "2")
    run("bert_a", "bert_r", "tupe_r", "--name", "x", "--at-once", "2")
    share = str(len(os.sched_getaffinity(0)) // 2)
    assert set(here.calls("threads")) == {f"threads {share}"}
    assert len(here.calls(" train ")) == 3
    assert " --at-once 2 " in capsys.readouterr().out
