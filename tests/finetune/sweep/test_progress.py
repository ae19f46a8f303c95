"""What the user reads while a sweep runs."""

import io
import re
import sys

from finetune.sweep.progress import SweepProgress, brief
from finetune.sweep.trial import Remark, Scored, Trained, Trial, result_of
from tests.finetune.fine_tuning_case import protocol
from tests.finetune.sweep.test_sweep import NEW, task

TRIALS = [Trial(NEW, task(name), 1e-4, 0) for name in ("RTE", "CoLA", "MNLI")]
SCORES = {"dev_matched": {"accuracy": 0.5}, "dev_mismatched": {"accuracy": 0.6}}


def receive_everything(progress):
    rte, cola, mnli = TRIALS
    progress.receive(rte, Trained(0))
    progress.receive(cola, Trained(40))
    progress.receive(mnli, Trained(100))
    progress.receive(mnli, Scored(1, SCORES))
    progress.receive(mnli, Scored(2, SCORES))
    progress.receive(cola, result_of(cola, protocol(), "diverged", reason="the loss is nan"))
    progress.receive(mnli, result_of(mnli, protocol(), "finished", reason="", scores=SCORES))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_there_is_a_line_for_each_end(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    progress = SweepProgress(dict.fromkeys(TRIALS, 100))
    receive_everything(progress)
    lines = sys.stderr.getvalue().splitlines()
    assert [line.partition("] ")[2] for line in lines] == [
        "CoLA small step 20 lr 0.0001 seed 0: diverged: the loss is nan, 0 s",
        "MNLI small step 20 lr 0.0001 seed 0: accuracy 55.0, 0 s",
    ]
    assert [line[:9] for line in lines] == ["[1/3 tria", "[2/3 tria"]
    assert all(" left]" in line for line in lines)


def test_a_terminal_shows_one_bar_and_only_problems_as_lines(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress = SweepProgress(dict.fromkeys(TRIALS, 100))
    receive_everything(progress)
    progress.receive(TRIALS[0], Trained(100))
    progress._bar.refresh()
    progress.close()
    shown = sys.stderr.getvalue()
    assert "CoLA small step 20 lr 0.0001 seed 0: diverged: the loss is nan\n" in shown
    last = shown.split("\r")[-1]
    # What the diverged run had left is not to be done: 40 + 100 + 100 of 240 rows.
    assert last.startswith("2/3 trials 100%") and "MNLI epoch 2: accuracy 55.0" in last
    assert (progress._bar.n, progress._bar.total) == (240, 240)


def test_a_remark_on_a_task_is_written_once(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress = SweepProgress(dict.fromkeys(TRIALS, 100))
    for trial in (TRIALS[0], TRIALS[0], TRIALS[1]):
        progress.receive(trial, Remark("3 rows are cut"))
    lines = re.split("[\r\n]", sys.stderr.getvalue())
    progress.close()
    assert [line for line in lines if "cut" in line] == [
        f"{task}: 3 rows are cut" for task in ("RTE", "CoLA")
    ]


def test_scores_of_several_splits_are_shown_as_their_mean():
    assert brief({"dev": {"pearson": 0.123, "spearman": 0.456}}) == "pearson 12.3, spearman 45.6"
    assert brief(SCORES) == "accuracy 55.0"
