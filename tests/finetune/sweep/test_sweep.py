"""A sweep may grow and not change; finished trials are kept; every end is recorded."""

import errno
import json
import os
from dataclasses import replace

import pytest
import torch

from finetune.results.result import predictions_file, read_result, save_result
from finetune.results.sweep_results import ADDED_SETTINGS, ModelRef, read_sweep_record
from finetune.sweep import trial as trial_module
from finetune.sweep.folder import merged, record_of, save_sweep_record
from finetune.sweep.references import TaskRef
from finetune.sweep.sweep import TrialSweep, divided, trials_of
from finetune.sweep.trial import Context, Trial, TrialRunner, result_of
from finetune.tasks.task import Example, Task, TaskData, TaskError
from finetune.training.batches import TokenRows
from finetune.training.encoding import EncodedSplit
from finetune.training.train import Diverged
from pretrain.config.errors import ConfigError
from pretrain.train.sweeps.pool import locked
from tests.finetune.fine_tuning_case import protocol, tiny_pretrained, tiny_task


def model(source, step, digest, *, pretrained=True, name="small"):
    return ModelRef(model=name, source=source, step=step, pretrained=pretrained, digest=digest)


OLD, NEW = model("/run/10", 10, "aa"), model("/run/20", 20, "bb")
SCRATCH = model("/run/20", None, "cc", pretrained=False)
RETRAINED = model("/run/20", 20, "dd")


def task(name="tiny"):
    row = Task(name, ("no", "yes"), ("accuracy",), ("a",), "b")
    return TaskRef(row)


def data(name="tiny", rows=40, text="x", test="x"):
    train = [Example((text,), number % 3 // 2, str(number)) for number in range(rows)]
    unlabelled = [Example((test,), None, str(number)) for number in range(2)]
    return TaskData(task(name).task, train, {"dev": train[:9]}, {"test": unlabelled})


def test_trials_are_the_product_and_those_of_a_task_and_a_model_are_neighbours():
    rules = protocol(learning_rates=(1e-3, 1e-4), seeds=2)
    trials = trials_of([OLD, NEW, SCRATCH], [task("a"), task("b")], rules)
    assert len(set(trials)) == len(trials) == 3 * 2 * 2 * 2
    groups = [(trial.task, trial.model) for trial in trials]
    assert sum(a != b for a, b in zip(groups, groups[1:], strict=False)) == 5
    assert len({trial.folder for trial in trials}) == len(trials)
    assert str(trials[0].folder) == "a/small-step_00000010-0.001-seed0"
    assert str(trials[-1].folder) == "b/small-without-pre-training-0.0001-seed1"


def record(models=(NEW,), tasks=("tiny",), text="x", test=None, **changes):
    found = {name: data(name, text=text, test=test or "x") for name in tasks}
    return record_of(models, found, protocol(**changes), predicts_test=test is not None)


def grown(before, now, folder):
    """Return the record of a folder after two requests."""
    (folder / "grid.json").write_text(before.model_dump_json())
    return merged(now, folder)


def test_more_tasks_models_rates_and_seeds_are_added(tmp_path):
    first = record(seeds=3, learning_rates=(1e-3, 1e-4))
    both = grown(
        first, record((OLD, SCRATCH), ("other",), seeds=2, learning_rates=(1e-5,)), tmp_path
    )
    assert both.tasks == ["tiny", "other"] and both.seeds == [0, 1, 2]
    assert both.learning_rates == [1e-5, 1e-4, 1e-3]
    assert [model.step for model in both.models] == [20, 10, None]
    assert grown(both, first, tmp_path) == both


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (
            {},
            {"epochs": 9, "epochs_of": {"a": 1}, "name": "x"},
            r"in epochs \(2 and 9\): choose another folder",
        ),
        ({}, {"name": "x"}, r"in name \(test and x\): "),
        ({}, {"text": "y"}, "in examples of tiny: .* another --name"),
        ({"test": "one"}, {"test": "another"}, "in examples of tiny: "),
        ({}, {"models": (RETRAINED,)}, "in weights of small step 20: "),
    ],
)
def test_what_differs_from_the_sweep_in_the_folder_is_refused(tmp_path, before, now, message):
    with pytest.raises(ConfigError, match=message):
        grown(record(**before), record(**now), tmp_path)


def test_a_sweep_from_before_digests_had_a_second_part_continues_with_the_same_examples(tmp_path):
    now = record(test="one")
    first_parts = {
        field: {name: digest.partition("-")[0] for name, digest in getattr(now, field).items()}
        for field in ("data", "test")
    }
    old = now.model_copy(update=first_parts)
    assert grown(old, now, tmp_path) == now
    for other in ({"text": "y"}, {"test": "another"}):
        with pytest.raises(ConfigError, match="examples of tiny"):
            grown(old, record(**{"test": "one", **other}), tmp_path)


def test_a_sweep_from_before_a_setting_existed_continues_if_the_setting_is_at_its_default(tmp_path):
    now = record()
    old = now.model_copy(
        update={"protocol": {k: v for k, v in now.protocol.items() if k not in ADDED_SETTINGS}}
    )
    assert old.protocol.keys() < now.protocol.keys()
    assert grown(old, now, tmp_path) == now
    for name, default in ADDED_SETTINGS.items():
        assert now.protocol[name] == default
    with pytest.raises(ConfigError, match=r"layer_decay \(1.0 and 0.8\)"):
        grown(old, record(layer_decay=0.8), tmp_path)


@pytest.mark.parametrize("name", ["..", "/etc", "a/../../b", ".hidden"])
def test_whatever_the_name_of_a_model_its_trials_stay_in_the_folder_of_the_task(tmp_path, name):
    trial = Trial(model("x", None, "aa", name=name), task(), 1e-3, 0)
    assert (tmp_path / trial.folder).resolve().parent == (tmp_path / "tiny").resolve()


def test_one_sweep_at_a_time_fills_a_folder_and_a_full_disk_is_one_line(tmp_path):
    busy = pytest.raises(ConfigError, match="another process is running a sweep in")
    with locked(tmp_path), busy, locked(tmp_path):  # a lock is of an open file, not of a process
        pass
    (tmp_path / "file").touch()
    message = "cannot write into .*file/x"
    with pytest.raises(ConfigError, match=message), locked(tmp_path / "file/x"):
        pass
    message = "cannot write into .*: No space left on device; make room"
    with pytest.raises(ConfigError, match=message), locked(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(BrokenPipeError), locked(tmp_path):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_what_was_asked_for_is_read_back(tmp_path):
    assert read_sweep_record(tmp_path) is None
    save_sweep_record(tmp_path, record(), {"tiny": data()})
    save_sweep_record(tmp_path, record(tasks=("tiny", "b")), {"b": data("b")})
    assert read_sweep_record(tmp_path) == record(tasks=("tiny", "b"))
    majority = json.loads((tmp_path / "majority.json").read_text())
    assert majority == {name: {"dev": {"accuracy": pytest.approx(6 / 9)}} for name in ("tiny", "b")}


TRIAL = Trial(NEW, task(), 1e-3, 0)


def run_in(folder, load=None, *, predicts_test=False, keeps_model=False, heard=None):
    """Run the trial in a sweep of this folder; return its folder and its result."""
    context = Context(folder, protocol(), predicts_test, keeps_model, torch.get_num_threads(), {})
    runner = TrialRunner(context, "cpu")
    runner.load = load or (lambda trial: (tiny_pretrained(), tiny_task()))
    result = runner.run(TRIAL, [].append if heard is None else heard.append)
    return folder / TRIAL.folder, result


def test_a_trial_that_ends_leaves_scores_curves_and_nothing_of_an_interrupted_one(tmp_path):
    (tmp_path / TRIAL.folder).mkdir(parents=True)
    (tmp_path / TRIAL.folder / "events.out.tfevents.old").touch()
    place, result = run_in(tmp_path)
    assert result == read_result(place) and result.status == "finished"
    assert result.scores.keys() == {"dev"} and (result.model, result.step) == ("small", 20)
    names = [file.name for file in place.iterdir()]
    assert sum(name.startswith("events.") for name in names) == 1
    assert "events.out.tfevents.old" not in names
    assert [name for name in names if "predictions" in name] == ["predictions_dev.json"]


def test_what_was_asked_for_before_is_made_again_with_what_is_asked_for_now(tmp_path):
    place, first = run_in(tmp_path, predicts_test=True)
    before = predictions_file(place, "test").read_bytes()
    _, again = run_in(tmp_path)
    assert again.scores == first.scores
    assert predictions_file(place, "test").read_bytes() == before


def test_a_model_that_cannot_be_written_costs_no_scores(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(trial_module, "save_model", full)
    heard = []
    place, result = run_in(tmp_path, keeps_model=True, heard=heard)
    assert result.status == "finished" and result.scores["dev"]
    (remark,) = [message for message in heard if isinstance(message, str)]
    assert remark.endswith("was not kept: No space left on device")
    assert not list(place.rglob("model*"))


def test_rows_that_are_cut_are_remarked(tmp_path):
    rows = [[2, *range(4, 4 + count), 3] for count in (10, 28, 27, 28)]
    examples = [Example((), number % 2, "abcd"[number]) for number in range(4)]
    cut = EncodedSplit(TokenRows(rows, pad=0, longest=30), examples)
    heard, data = [], replace(tiny_task(), train=cut)
    run_in(tmp_path, lambda trial: (tiny_pretrained(), data), heard=heard)
    (remark,) = [message for message in heard if isinstance(message, str)]
    where = "30 tokens, the most that the encoder takes"
    assert remark == f"2 of the 4 training examples fill {where}; text beyond is cut off"


@pytest.mark.parametrize("regression", [False, True])
def test_predictions_have_the_identity_of_their_row_and_the_label_of_a_class(tmp_path, regression):
    data = tiny_task(regression=regression)
    load = lambda trial: (tiny_pretrained(), data)  # noqa: E731
    place, result = run_in(tmp_path, load, predicts_test=True)
    for name, split in (("test", data.test["test"]), ("dev", data.development["dev"])):
        rows = json.loads(predictions_file(place, name).read_text())
        assert [row["identity"] for row in rows] == [one.identity for one in split.examples]
        for row, expected in zip(rows, split.labels or [None] * len(rows), strict=True):
            words = {} if regression else {"label": ("no", "yes")[row["prediction"]]}
            if expected is not None:
                words["expected"] = expected if regression else ("no", "yes")[expected]
            assert row == {"identity": row["identity"], "prediction": row["prediction"], **words}
    right = [row["label"] == row["expected"] for row in rows if not regression]
    assert regression or sum(right) / 30 == result.scores["dev"]["accuracy"]


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("the cable\nis loose"), "failed", "RuntimeError: the cable"),
        (Diverged("the loss is nan"), "diverged", "the loss is nan"),
    ],
)
def test_an_error_and_a_divergence_are_results_with_a_reason(tmp_path, error, status, reason):
    def load(trial):
        raise error

    place, result = run_in(tmp_path, load)
    assert (result.status, result.reason) == (status, reason) and read_result(place) == result
    assert status == "diverged" or "is loose" in (place / "error.txt").read_text()


def test_a_trial_whose_examples_have_changed_since_the_sweep_began_is_refused(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("finetune.sweep.trial.load_model", lambda source: tiny_pretrained())
    monkeypatch.setattr(TaskRef, "load", lambda self: data(text="y"))
    context = Context(tmp_path, protocol(), False, False, 1, {"tiny": data().labelled_digest})
    with pytest.raises(TaskError, match="tiny: its examples have changed"):
        TrialRunner(context, "cpu").load(TRIAL)


def test_the_process_of_a_failed_trial_ends_after_its_result(tmp_path):
    """After a CUDA error every later trial in it would fail."""
    with pytest.raises(SystemExit):
        TrialRunner(Context(tmp_path, protocol(), False, False, 1, {}), "cpu")(TRIAL, print)
    assert read_result(tmp_path / TRIAL.folder).status == "failed"


def test_what_is_over_is_run_again_only_if_it_failed_or_something_of_it_is_wanted(tmp_path):
    place = tmp_path / TRIAL.folder
    place.mkdir(parents=True)

    def asked(predicts_test, keep="none"):
        return TrialSweep(tmp_path, protocol(), [TRIAL], {"tiny": data()}, predicts_test, keep)

    def is_over(*, predicts_test=False):
        return asked(predicts_test).missing() == []

    assert not is_over()
    for status in ("failed", "diverged", "finished"):
        scores = {"dev": {"accuracy": 0.5}} if status == "finished" else {}
        save_result(place, result_of(TRIAL, protocol(), status, reason="", scores=scores))
        assert is_over() == (status != "failed")
        assert is_over(predicts_test=True) == (status != "failed")
    # Of a chosen trial test predictions are wanted later too, and the model.
    assert asked(True).lacks(TRIAL) and not asked(False).lacks(TRIAL)
    predictions_file(place, "test").touch()
    assert not asked(True).lacks(TRIAL) and asked(True, "best").lacks(TRIAL)


def test_cores_are_divided_among_the_workers(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert divided(None, 20) == (["cpu"] * 8, 1)
    assert divided(None, 3) == (["cpu"] * 3, 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [divided(workers, 20)[1] for workers in (None, 2, 1)] == [1, 3, 3]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert divided(3, 20) == (["cuda:0", "cuda:1", "cuda:0"], 2)


def test_a_sweep_in_the_folder_of_another_is_another(tmp_path):
    for folder in (tmp_path, tmp_path / "other"):
        folder.mkdir(exist_ok=True)
        (folder / "grid.json").write_text(record().model_dump_json())
    place = tmp_path / "other" / TRIAL.folder
    place.mkdir(parents=True)
    save_result(place, result_of(TRIAL, protocol(), "diverged", reason=""))
    for folder, missing in ((tmp_path, [TRIAL]), (tmp_path / "other", [])):
        sweep = TrialSweep(folder, protocol(), [TRIAL], {"tiny": data()}, False)
        assert sweep.missing() == missing
