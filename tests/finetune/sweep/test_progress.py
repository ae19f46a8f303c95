"""What the user reads while a grid runs."""

import io
import re
import sys

import pytest

from finetune.sweep.progress import GridProgress, brief
from finetune.sweep.trial import Cell, Remark, Scored, Trained, result_of
from tests.finetune.fine_tuning_case import protocol
from tests.finetune.sweep.test_sweep import NEW, task

CELLS = [Cell(NEW, task(name), 1e-4, 0) for name in ("RTE", "CoLA", "MNLI")]
SCORES = {"dev_matched": {"accuracy": 0.5}, "dev_mismatched": {"accuracy": 0.6}}


def hear_everything(progress):
    rte, cola, mnli = CELLS
    progress.hear(rte, Trained(0))
    progress.hear(cola, Trained(40))
    progress.hear(mnli, Trained(100))
    progress.hear(mnli, Scored(1, SCORES))
    progress.hear(mnli, Scored(2, SCORES))
    progress.hear(cola, result_of(cola, protocol(), "diverged", reason="the loss is nan"))
    progress.hear(mnli, result_of(mnli, protocol(), "finished", reason="", scores=SCORES))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_there_is_a_line_for_each_end_and_at_most_one_a_minute_between(
    monkeypatch,
):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    now = [1e6]
    monkeypatch.setattr("finetune.sweep.progress.time.monotonic", lambda: now[0])
    progress = GridProgress(dict.fromkeys(CELLS, 100), dict.fromkeys(CELLS, 1.0))
    hear_everything(progress)
    now[0] += 61
    progress.hear(CELLS[0], Trained(50))  # long epochs
    progress.hear(CELLS[0], Trained(50))
    lines = sys.stderr.getvalue().splitlines()
    assert [line.partition("] ")[2] for line in lines] == [
        "CoLA small step 20 lr 0.0001 seed 0: diverged: the loss is nan, 0 s",
        "MNLI small step 20 lr 0.0001 seed 0: accuracy 55.0, 0 s",
        "RTE | MNLI epoch 2: accuracy 55.0",
    ]
    assert [line[:9] for line in lines] == ["[1/3 runs", "[2/3 runs", "[2/3 runs"]
    assert all(" left]" in line for line in lines)


def test_a_terminal_shows_one_bar_and_only_troubles_as_lines(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress = GridProgress(dict.fromkeys(CELLS, 100), dict.fromkeys(CELLS, 1.0))
    hear_everything(progress)
    progress.hear(CELLS[0], Trained(100))
    progress._bar.refresh()
    progress.close()
    shown = sys.stderr.getvalue()
    assert "CoLA small step 20 lr 0.0001 seed 0: diverged: the loss is nan\n" in shown
    last = shown.split("\r")[-1]
    # What the diverged run had left is not to be done: 40 + 100 + 100 of 240 rows.
    assert last.startswith("2/3 runs 100%") and "RTE | MNLI epoch 2: accuracy 55.0" in last
    assert (progress._bar.n, progress._bar.total) == (240, 240)


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_remark_on_a_task_is_written_once(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream())
    progress = GridProgress(dict.fromkeys(CELLS, 100), dict.fromkeys(CELLS, 1.0))
    for cell in (CELLS[0], CELLS[0], CELLS[1]):
        progress.hear(cell, Remark("3 rows are cut"))
    lines = re.split("[\r\n]", sys.stderr.getvalue())
    progress.close()
    assert [line for line in lines if "cut" in line] == [
        f"{task}: 3 rows are cut" for task in ("RTE", "CoLA")
    ]


def test_the_time_left_counts_long_rows_as_long(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    now = [100.0]
    monkeypatch.setattr("finetune.sweep.progress.time.monotonic", lambda: now[0])
    rte, cola, _ = CELLS
    progress = GridProgress({rte: 50, cola: 100}, {rte: 6.0, cola: 1.0})
    now[0] += 20
    progress.hear(cola, Trained(100))
    progress.hear(cola, result_of(cola, protocol(), "finished", reason="", scores=SCORES))
    last = sys.stderr.getvalue().splitlines()[-1]
    assert last.startswith("[1/2 runs, 01:00 left] CoLA")  # 3 times 20 s


def test_scores_of_several_splits_are_told_as_their_mean():
    assert brief({"dev": {"pearson": 0.123, "spearman": 0.456}}) == "pearson 12.3, spearman 45.6"
    assert brief(SCORES) == "accuracy 55.0"
