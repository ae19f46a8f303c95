"""What the user reads while a sweep runs."""

import signal

from finetune.results.result import read_result, save_result
from finetune.sweep import sweep as sweep_module
from finetune.sweep.sweep import TrialsRunning, TrialSweep
from finetune.sweep.trial import Trial, result_of
from tests.finetune.conftest import WorkerHere
from tests.finetune.fine_tuning_case import protocol
from tests.finetune.sweep.test_sweep import NEW, data, task

SCORES = {"dev_matched": {"accuracy": 0.5}, "dev_mismatched": {"accuracy": 0.6}}


class Worker(WorkerHere):
    """Says and writes what a worker would: the second seed diverges."""

    def start(self):
        self.receive(self.unit, 8)
        self.receive(self.unit, "3 rows are cut")
        ended = [("finished", "", SCORES), ("diverged", "the loss is nan", {})]
        status, reason, scores = ended[self.unit.seed]
        found = result_of(self.unit, protocol(), status, reason=reason, scores=scores)
        place = self.prepare.args[0].folder / self.unit.folder
        place.mkdir(parents=True)
        save_result(place, found)


def test_each_end_is_said_and_a_remark_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sweep_module, "Worker", Worker)
    trials = [Trial(NEW, task("RTE"), 1e-4, seed) for seed in (0, 1)]
    sweep = TrialSweep(tmp_path, protocol(), trials, {"RTE": data("RTE")}, False)
    assert not TrialsRunning(sweep, trials, lambda trial: None).run(1)
    output, errors = capsys.readouterr()
    # 40 examples to train on and 9 to score, twice, with two seeds.
    assert output.splitlines() == [
        "RTE: 3 rows are cut",
        "[1/2] RTE small step 20 lr 0.0001 seed 0: accuracy 55.0, 0 s",
        "[2/2] RTE small step 20 lr 0.0001 seed 1: diverged, the loss is nan, 0 s",
    ]
    assert "fine-tuning: 100%" in errors and "196/196" in errors


class KilledWorker(WorkerHere):
    """Ends in a trial as where the system ends it for lack of memory."""

    def start(self):
        pass

    def status(self):
        return 128 + signal.SIGKILL


def test_a_trial_whose_worker_is_killed_has_failed_and_its_result_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_module, "Worker", KilledWorker)
    trial = Trial(NEW, task("RTE"), 1e-4, 0)
    sweep, ended = TrialSweep(tmp_path, protocol(), [trial], {"RTE": data("RTE")}, False), []
    assert TrialsRunning(sweep, [trial], ended.append).run(1)
    result = read_result(tmp_path / trial.folder)
    assert result.status == "failed" and ended == sweep.missing() == [trial]
    assert result.reason.startswith("the worker process ended with SIGKILL, often for lack of")
