"""The model of the chosen trial stays, whatever stops the sweep, and whichever way it grows."""

import json
import shutil

import pytest

from finetune.results import model_folder
from finetune.results.model_folder import FINE_TUNED, MODEL_FOLDER, has_model
from finetune.results.result import read_result, save_result
from finetune.sweep.folder import record_of, save_sweep_record
from finetune.sweep.references import TaskRef
from finetune.sweep.sweep import TrialSweep, chosen_trials, report, run_sweep, trials_of
from finetune.sweep.trial import TrialRunner, result_of
from tests.finetune.fine_tuning_case import protocol
from tests.finetune.models.kept_case import task_data
from tests.finetune.report.score_case import write_result
from tests.finetune.sweep.test_sweep import NEW, SCRATCH, grown

MODELS = [NEW, SCRATCH]
SCORES = {1e-3: (0.9, 0.5, 0.6), 3e-3: (0.6, 0.8, 0.7)}  # of each seed


def write_model(folder, weights):
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_text(weights)
    (folder / "config.json").write_text(json.dumps({FINE_TUNED: {"model": {}}}))


@pytest.fixture
def trials(in_this_process, monkeypatch):
    """Trials that train nothing: they write what one writes, a model before its result."""

    def run(self, trial, send):
        folder = self._context.folder / trial.folder
        keeps_model = self._context.keeps_model or has_model(folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if keeps_model:
            write_model(folder / MODEL_FOLDER, str(trial.folder))
        scores = {"dev": {"accuracy": SCORES[trial.learning_rate][trial.seed]}}
        result = result_of(trial, self._context.protocol, "finished", reason="", scores=scores)
        save_result(folder, result)

    monkeypatch.setattr(TrialRunner, "run", run)
    return in_this_process


def sweep_in(folder, *, keep="best", models=MODELS[:1], **changes):
    rules = protocol(**{"epochs": 1, "seeds": 3, "learning_rates": (1e-3, 3e-3), **changes})
    data = {"letters": task_data()}
    folder.mkdir(exist_ok=True)
    task = TaskRef(data["letters"].task)
    save_sweep_record(folder, record_of(models, data, rules, predicts_test=False), data)
    return TrialSweep(folder, rules, trials_of(models, [task], rules), data, False, keep)


def kept_in(folder):
    """Return the content of every file of every model, by its path."""
    files = folder.rglob(f"{MODEL_FOLDER}*/*")
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def expected_choice(folder):
    """Return the trial of the table, by a plain loop: best median of accuracy, then its seed."""
    by_rate = {}
    for file in sorted(folder.rglob("result.json")):
        result = read_result(file.parent)
        score = result.scores["dev"]["accuracy"]
        by_rate.setdefault(result.learning_rate, []).append((score, result.seed, file.parent))
    ranked = {rate: sorted(trials) for rate, trials in by_rate.items()}
    best = max(sorted(ranked), key=lambda rate: ranked[rate][1][0])
    return ranked[best][1][2]


@pytest.fixture
def undisturbed(trials, tmp_path):
    folder = tmp_path / "undisturbed"
    run_sweep(sweep_in(folder), 1)
    trials.ran.clear()
    return folder


def test_the_model_of_the_best_rates_median_seed_stays_and_no_other(undisturbed):
    (record,) = undisturbed.rglob(f"{MODEL_FOLDER}/config.json")
    assert record.parent.parent == expected_choice(undisturbed)


def test_a_repeat_that_scores_otherwise_keeps_its_model(trials, tmp_path, monkeypatch):
    run_sweep(sweep_in(tmp_path, keep="none"), 1)
    monkeypatch.setitem(SCORES, 3e-3, (0.6, 0.8, 0.85))  # as on a GPU
    run_sweep(sweep_in(tmp_path), 1)
    (_,) = tmp_path.rglob(f"{MODEL_FOLDER}/config.json")


def test_what_was_said_before_about_models_holds_until_something_else_is_said(tmp_path):
    data, rules = {"letters": task_data()}, protocol()

    def asked(keep):
        return record_of(MODELS, data, rules, predicts_test=False, keep=keep)

    assert grown(asked("all"), asked(None), tmp_path).keep == "all"
    assert grown(asked("all"), asked("best"), tmp_path).keep == "best"
    assert grown(asked(None), asked(None), tmp_path).keep is None


def test_no_model_is_chosen_where_most_seeds_diverged_or_all_failed(tmp_path):
    trials = sweep_in(tmp_path).trials
    for trial, scores in zip(trials, ["diverged", 0.9, "diverged", *["failed"] * 3], strict=True):
        write_result(
            *(tmp_path, "letters", scores),
            **{"model": "small", "rate": trial.learning_rate, "seed": trial.seed, "step": 20},
        )
    assert chosen_trials(tmp_path, trials) == []


def test_the_hint_names_the_chosen_model_and_a_failed_trial_is_the_status(undisturbed, capsys):
    sweep = sweep_in(undisturbed)
    for trial in sweep.trials:  # as with --keep all
        write_model(undisturbed / trial.folder / MODEL_FOLDER, "")
    report(sweep, has_failed=False)
    assert expected_choice(undisturbed) != undisturbed / sweep.trials[0].folder
    hint = f"predict {expected_choice(undisturbed) / MODEL_FOLDER} FILE"
    assert hint in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        report(sweep, has_failed=True)
    assert end.value.code == 1


def test_a_sweep_that_is_killed_and_resumed_keeps_what_an_undisturbed_one_keeps(
    trials, undisturbed, tmp_path
):
    folder, finished = tmp_path / "killed", 4
    trials.left = finished
    with pytest.raises(SystemExit):
        run_sweep(sweep_in(folder), 1)
    assert len(list(folder.rglob(f"{MODEL_FOLDER}/config.json"))) == finished
    half = folder / sweep_in(folder).trials[finished].folder / f"{MODEL_FOLDER}.partial"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half")
    trials.left = None
    run_sweep(sweep_in(folder), 1)
    assert len(trials.ran) == 6
    assert kept_in(folder) == kept_in(undisturbed)


# Of six models five are removed; each removal renames a folder, and removes it then.
def test_a_kill_while_models_are_removed_changes_nothing(
    trials, undisturbed, tmp_path, monkeypatch
):
    folder, rmtree, calls = tmp_path / "killed", model_folder.shutil.rmtree, []

    def killed_in_time(place, **options):
        if place.suffix == ".removed" and place.exists():
            calls.append(place)
            if len(calls) == 3:
                (place / "model.safetensors").unlink()
                raise SystemExit
        rmtree(place, **options)

    with monkeypatch.context() as power:
        power.setattr(model_folder.shutil, "rmtree", killed_in_time)
        with pytest.raises(SystemExit):
            run_sweep(sweep_in(folder), 1)
    assert kept_in(folder) != kept_in(undisturbed)
    run_sweep(sweep_in(folder), 1)
    assert len(trials.ran) == 6  # none is repeated
    assert kept_in(folder) == kept_in(undisturbed)


def test_a_chosen_trial_whose_model_was_not_kept_is_run_again(trials, undisturbed, tmp_path):
    folder = tmp_path / "earlier"
    run_sweep(sweep_in(folder, keep="none"), 1)
    assert kept_in(folder) == {}
    trials.ran.clear()
    run_sweep(sweep_in(folder), 1)
    assert len(trials.ran) == 1
    assert kept_in(folder) == kept_in(undisturbed)
    run_sweep(sweep_in(folder, keep="all"), 1)
    assert len(trials.ran) == 6
    run_sweep(sweep_in(folder, keep="none"), 1)
    assert len(list(folder.rglob(f"{MODEL_FOLDER}/config.json"))) == 6


def test_a_sweep_that_grows_keeps_the_model_that_is_chosen_then(trials, tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    run_sweep(sweep_in(large), 1)
    run_sweep(sweep_in(small, seeds=1, learning_rates=(1e-3,)), 1)
    run_sweep(sweep_in(small), 1)
    assert kept_in(small) == kept_in(large) != {}
