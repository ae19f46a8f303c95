"""The model of the chosen trial stays, whatever stops the sweep, and whichever way it grows."""

import hashlib

import pytest
import torch

from finetune.models import kept_model
from finetune.models.kept_model import MODEL_FOLDER, has_model, read_model
from finetune.results.result import read_result
from finetune.sweep import sweep as sweep_module
from finetune.sweep.folder import grown, record_of, save_sweep_record
from finetune.sweep.keeping import chosen_trials
from finetune.sweep.references import ModelRef, TaskRef
from finetune.sweep.sweep import Sweep, describe_sweep, run_sweep, trials_of
from finetune.sweep.trial import run_trial
from finetune.training.encoding import encode_task
from tests.finetune.fine_tuning_case import protocol, tiny_pretrained
from tests.finetune.models.kept_case import LENGTH, task_data
from tests.finetune.report.score_case import write_result
from tests.pretrain.convert.small_tokenizers import text_encoder_of, trained
from tests.selection import mostly_slow

MODELS = [
    ModelRef("/run/20", "small", 20, True, "bb"),
    ModelRef("/run/20", "small", None, False, "cc"),
]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def in_this_process(monkeypatch, tmp_path_factory):
    """Trials run here, on tiny encoders; the process can be killed after some of them."""
    text_encoder = text_encoder_of(trained("wordpiece"), tmp_path_factory.mktemp("tokenizer"))
    pretrained = tiny_pretrained(vocabulary_size=400)
    pretrained = pretrained._replace(text_encoder=text_encoder, sequence_length=LENGTH)
    rows = encode_task(task_data(), text_encoder, sequence_length=LENGTH)
    state = {"left": None, "ran": []}

    def run_trials(trials, context, devices):
        for trial in trials:
            if state["left"] == 0:
                raise Killed
            result = run_trial(
                trial,
                context.folder / trial.folder,
                context.protocol,
                lambda trial: (pretrained, rows),
                device=torch.device("cpu"),
                output=context.output,
                send=lambda message: None,
            )
            state["ran"].append(trial)
            if state["left"] is not None:
                state["left"] -= 1
            yield trial, result

    monkeypatch.setattr(sweep_module, "run_trials", run_trials)
    return state


def sweep_in(folder, *, keep="best", models=MODELS[:1], **changes):
    rules = protocol(**{"epochs": 1, "seeds": 3, "learning_rates": (1e-3, 3e-3), **changes})
    data = {"letters": task_data()}
    task = TaskRef(data["letters"].task)
    save_sweep_record(folder, record_of(models, data, rules, predicts_test=False), data)
    return Sweep(folder, rules, trials_of(models, [task], rules), data, False, False, keep)


def kept_in(folder):
    """Return the digest of every file of every model, by its path."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob(f"{MODEL_FOLDER}*/*")
    }


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
def undisturbed(in_this_process, tmp_path):
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    run_sweep(sweep_in(folder), 1)
    in_this_process["ran"].clear()
    return folder


def test_the_model_of_the_best_rates_median_seed_stays_and_no_other(undisturbed):
    (record,) = undisturbed.rglob("fine_tuned.json")
    assert record.parent.parent == expected_choice(undisturbed)
    result = read_result(record.parent.parent)
    kept = read_model(record.parent).record
    assert (kept.learning_rate, kept.seed) == (result.learning_rate, result.seed)
    assert kept.scores == result.scores


def test_each_encoder_has_a_model_of_its_own(in_this_process, tmp_path):
    run_sweep(sweep_in(tmp_path, models=MODELS), 1)
    groups = {file.parents[3].name for file in tmp_path.rglob("fine_tuned.json")}
    assert groups == {"small-step_00000020", "small-without-pre-training"}
    assert len(list(tmp_path.rglob("fine_tuned.json"))) == 2


@pytest.mark.parametrize("finished", mostly_slow((4, 0, 1, 2, 3, 5), "repeats a promise"))
def test_a_sweep_that_is_killed_and_resumed_keeps_what_an_undisturbed_one_keeps(
    in_this_process, undisturbed, tmp_path, finished
):
    folder = tmp_path / "killed"
    folder.mkdir()
    in_this_process["left"] = finished
    with pytest.raises(Killed):
        run_sweep(sweep_in(folder), 1)
    assert len(list(folder.rglob("fine_tuned.json"))) == finished
    in_this_process["left"] = None
    run_sweep(sweep_in(folder), 1)
    assert len(in_this_process["ran"]) == 6
    assert kept_in(folder) == kept_in(undisturbed)


# Of six models five are removed; each removal renames a folder, and removes it then.
@pytest.mark.parametrize(
    ("removed", "halfway"),
    mostly_slow(
        [(2, True), *((n, halfway) for n in (0, 1, 3, 4) for halfway in (False, True))],
        "repeats a promise",
    ),
)
def test_a_kill_between_writing_and_choosing_or_while_removing_changes_nothing(
    in_this_process, undisturbed, tmp_path, monkeypatch, removed, halfway
):
    folder = tmp_path / "killed"
    folder.mkdir()
    rmtree, calls = kept_model.shutil.rmtree, []

    def killed_in_time(place, **options):
        if place.suffix == ".removed" and place.exists():
            calls.append(place)
            if len(calls) > removed:
                if halfway:
                    (place / "model.safetensors").unlink()
                raise Killed
        rmtree(place, **options)

    with monkeypatch.context() as power:
        power.setattr(kept_model.shutil, "rmtree", killed_in_time)
        with pytest.raises(Killed):
            run_sweep(sweep_in(folder), 1)
    assert len(calls) == removed + 1
    assert kept_in(folder) != kept_in(undisturbed)
    run_sweep(sweep_in(folder), 1)
    assert len(in_this_process["ran"]) == 6  # none is repeated
    assert kept_in(folder) == kept_in(undisturbed)


def test_a_model_that_was_being_written_is_written_again(in_this_process, undisturbed, tmp_path):
    folder = tmp_path / "killed"
    folder.mkdir()
    in_this_process["left"] = 2
    with pytest.raises(Killed):
        run_sweep(sweep_in(folder), 1)
    trial = sweep_in(folder).trials[2].folder
    partial = folder / trial / f"{MODEL_FOLDER}.partial"
    partial.mkdir(parents=True)
    (partial / "model.safetensors").write_bytes(b"half")
    in_this_process["left"] = None
    run_sweep(sweep_in(folder), 1)
    assert kept_in(folder) == kept_in(undisturbed)


def test_a_chosen_model_that_was_not_kept_is_trained_again_and_is_the_same(
    in_this_process, undisturbed, tmp_path, capsys
):
    """As in a sweep from before models were kept, or one that has grown."""
    folder = tmp_path / "earlier"
    folder.mkdir()
    run_sweep(sweep_in(folder, keep="none"), 1)
    assert kept_in(folder) == {}
    before = {file: read_result(file.parent).scores for file in folder.rglob("result.json")}
    later = sweep_in(folder)
    assert "again, for its model: letters small step 20 lr" in describe_sweep(later)
    in_this_process["ran"].clear()
    run_sweep(later, 1)
    assert len(in_this_process["ran"]) == 1
    assert "again, as its model was not kept: letters small step 20" in capsys.readouterr().err
    assert kept_in(folder) == kept_in(undisturbed)
    after = {file: read_result(file.parent).scores for file in folder.rglob("result.json")}
    assert after == before
    assert "again" not in describe_sweep(sweep_in(folder))


def test_a_sweep_that_grows_keeps_the_model_that_is_chosen_then(in_this_process, tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    for folder in (small, large):
        folder.mkdir()
    run_sweep(sweep_in(large, seeds=5, learning_rates=(1e-3, 3e-3, 1e-2)), 1)
    run_sweep(sweep_in(small, seeds=3, learning_rates=(1e-3,)), 1)
    run_sweep(sweep_in(small, seeds=5, learning_rates=(3e-3, 1e-2)), 1)
    run_sweep(sweep_in(small, seeds=5, learning_rates=(1e-3,)), 1)
    assert kept_in(small) == kept_in(large) != {}


def test_all_models_stay_where_that_is_asked_for_and_missing_ones_are_trained(
    in_this_process, tmp_path
):
    run_sweep(sweep_in(tmp_path), 1)
    in_this_process["ran"].clear()
    run_sweep(sweep_in(tmp_path, keep="all"), 1)
    assert len(in_this_process["ran"]) == 5
    assert len(list(tmp_path.rglob("fine_tuned.json"))) == 6
    run_sweep(sweep_in(tmp_path, keep="none"), 1)
    assert len(list(tmp_path.rglob("fine_tuned.json"))) == 6


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
        folder = write_result(
            *(tmp_path, "letters", scores),
            **{"model": "small", "rate": trial.learning_rate, "seed": trial.seed, "step": 20},
        )
        (tmp_path / trial.folder).parent.mkdir(parents=True, exist_ok=True)
        folder.rename(tmp_path / trial.folder)
    assert chosen_trials(tmp_path, trials) == []


def test_scores_that_change_when_a_trial_is_repeated_may_change_the_choice_once_each(
    in_this_process, tmp_path, monkeypatch
):
    """As on a GPU: the loop ends, and what is kept is the model of the chosen trial."""
    run_sweep(sweep_in(tmp_path, keep="none"), 1)
    in_this_process["ran"].clear()
    ordinary = sweep_module.run_trials

    def noisy(trials, context, devices):
        for trial, result in ordinary(trials, context, devices):
            scores = {"dev": {"accuracy": 0.01 * len(in_this_process["ran"]), "macro_f1": 0.0}}
            changed = result.model_copy(update={"scores": scores})
            kept_model.save_text(
                context.folder / trial.folder / "result.json", changed.model_dump_json()
            )
            yield trial, changed

    monkeypatch.setattr(sweep_module, "run_trials", noisy)
    sweep = sweep_in(tmp_path)
    run_sweep(sweep, 1)
    assert 1 <= len(in_this_process["ran"]) <= 6
    (chosen,) = chosen_trials(tmp_path, sweep.trials)
    assert has_model(tmp_path / chosen.folder)
    assert len(list(tmp_path.rglob("fine_tuned.json"))) == 1
