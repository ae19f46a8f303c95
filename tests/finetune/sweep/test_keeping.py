"""The model of the chosen trial stays, whatever stops the sweep, and whichever way it grows."""

import hashlib
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from finetune.models import kept_model
from finetune.models.kept_model import MODEL_FOLDER, has_model, kept_folder, read_model
from finetune.results import result as result_module
from finetune.results.result import read_result
from finetune.sweep import sweep as sweep_module
from finetune.sweep import trial as trial_module
from finetune.sweep.folder import grown, record_of, save_sweep_record
from finetune.sweep.keeping import chosen_trials
from finetune.sweep.references import ModelRef, TaskRef
from finetune.sweep.sweep import Sweep, describe_sweep, report, run_sweep, trials_of
from finetune.sweep.trial import TrialOutput, run_trial
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
    state = {"left": None, "ran": [], "threads": []}

    def load(trial):
        state["threads"].append(torch.get_num_threads())
        return pretrained, rows

    def run_trials(trials, context, devices):
        for trial in trials:
            if state["left"] == 0:
                raise Killed
            result = run_trial(
                trial,
                context.folder / trial.folder,
                context.protocol,
                load,
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


@pytest.fixture
def all_kept(in_this_process, tmp_path):
    """A sweep with the models of all trials, and one of those that are not chosen."""
    folder = tmp_path / "run/test"
    folder.mkdir(parents=True)
    sweep = sweep_in(folder, keep="all")
    run_sweep(sweep, 1)
    (chosen,) = chosen_trials(folder, sweep.trials)
    other = next(trial for trial in sweep.trials if trial != chosen)
    return folder, chosen, other


def test_a_model_with_which_a_sweep_beside_this_one_began_stays(all_kept, capsys):
    """The run may have been moved since then: the place that was recorded is another."""
    folder, chosen, other = all_kept
    beside = folder.with_name("test-after-letters")
    begin_with(f"/moved/run/test/{other.folder}/model", beside)
    run_sweep(sweep_in(folder), 1)
    assert {file.parents[1] for file in folder.rglob("fine_tuned.json")} == {
        folder / chosen.folder,
        folder / other.folder,
    }
    line = f"{folder / other.folder}/model stays: {beside} began with it"
    assert capsys.readouterr().err.splitlines()[-1] == line


def begin_with(model, beside):
    """Record in a folder the sweep that began with this model."""
    beside.mkdir(parents=True)
    began, data = replace(MODELS[0], place=str(model), digest="dd"), {"letters": task_data()}
    save_sweep_record(beside, record_of([began], data, protocol(), predicts_test=False), data)


@pytest.mark.parametrize("is_linked_now", [True, False])
def test_a_model_stays_that_was_used_by_a_link_to_the_sweep(all_kept, tmp_path, is_linked_now):
    """The sweep that began with it is beside the link, or beside the folder itself."""
    folder, chosen, other = all_kept
    link = tmp_path / "links/test-of-mine"
    link.parent.mkdir()
    link.symlink_to(folder)
    place = link if is_linked_now else folder
    begin_with(link / other.folder / MODEL_FOLDER, place.with_name("test-after-letters"))
    run_sweep(sweep_in(place), 1)
    kept = {file.parents[1] for file in folder.rglob("fine_tuned.json")}
    assert kept == {folder / chosen.folder, folder / other.folder}


def test_a_model_in_use_stays_where_its_sweep_has_another_name_now(all_kept):
    folder, chosen, other = all_kept
    begin_with(folder / other.folder / MODEL_FOLDER, folder.with_name("test-after-letters"))
    renamed = folder.rename(folder.with_name("renamed"))
    run_sweep(sweep_in(renamed), 1)
    kept = {file.parents[1] for file in renamed.rglob("fine_tuned.json")}
    assert kept == {renamed / chosen.folder, renamed / other.folder}


def test_the_same_model_of_another_sweep_that_is_in_use_keeps_none_here(all_kept):
    folder, chosen, other = all_kept
    copied = shutil.copytree(folder, folder.with_name("another"))
    begin_with(copied / other.folder / MODEL_FOLDER, folder.with_name("another-after-letters"))
    run_sweep(sweep_in(folder), 1)
    kept = [file.parents[1] for file in folder.rglob("fine_tuned.json")]
    assert kept == [folder / chosen.folder]


def test_no_model_is_removed_where_the_record_of_a_sweep_beside_it_is_damaged(all_kept, capsys):
    folder, chosen, _ = all_kept
    beside = folder.with_name("other")
    beside.mkdir()
    (beside / "grid.json").write_text('{"models": [{"source": "/run/test/letters')
    (folder.with_name("unrelated")).mkdir()
    (folder.with_name("unrelated") / "grid.json").write_text("{")
    run_sweep(sweep_in(folder), 1)
    assert len(list(folder.rglob("fine_tuned.json"))) == 6
    assert f"no model was removed: {beside}/grid.json is damaged" in capsys.readouterr().err


def test_a_damaged_result_of_another_model_is_a_warning(in_this_process, tmp_path, capsys):
    run_sweep(sweep_in(tmp_path, models=MODELS[1:]), 1)
    damaged = next(tmp_path.rglob("result.json"))
    damaged.write_text("{")
    sweep = sweep_in(tmp_path)
    run_sweep(sweep, 1)
    (chosen,) = chosen_trials(tmp_path, sweep.trials)
    assert has_model(tmp_path / chosen.folder)
    report(sweep, has_failed=False)
    output, errors = capsys.readouterr()
    assert f"warning: it is not in the table: {damaged} is damaged" in errors
    assert "small step 20" in " ".join(output.split())


def test_models_stay_where_an_earlier_result_of_their_task_is_damaged(
    in_this_process, tmp_path, capsys
):
    run_sweep(sweep_in(tmp_path, keep="all", learning_rates=(1e-2,)), 1)
    damaged = next(tmp_path.rglob("result.json"))
    damaged.write_text("{")
    run_sweep(sweep_in(tmp_path), 1)
    assert len(list(tmp_path.rglob("fine_tuned.json"))) == 9
    assert f"was removed: {damaged} is damaged" in capsys.readouterr().err


def test_a_choice_reads_the_results_of_its_own_model_alone(in_this_process, tmp_path, monkeypatch):
    read, ordinary = [], result_module.read_result
    monkeypatch.setattr(
        result_module, "read_result", lambda folder: read.append(folder) or ordinary(folder)
    )
    counts = []
    for name, models in (("one", MODELS[:1]), ("two", MODELS)):
        folder = tmp_path / name
        folder.mkdir()
        read.clear()
        run_sweep(sweep_in(folder, models=models), 1)
        counts.append(len(read))
    assert counts[1] == 2 * counts[0]


def test_a_trial_that_is_run_again_takes_as_many_threads_as_before(in_this_process, tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        run_sweep(sweep_in(tmp_path, keep="none"), 1)
        assert {read_result(file.parent).threads for file in tmp_path.rglob("result.json")} == {1}
        torch.set_num_threads(2)
        run_sweep(sweep_in(tmp_path), 1)
        assert torch.get_num_threads() == 2
        assert in_this_process["threads"] == [1] * 7
        run_sweep(sweep_in(tmp_path, learning_rates=(1e-2,), seeds=1), 1)
        assert in_this_process["threads"] == [1] * 7 + [2]
    finally:
        torch.set_num_threads(before)
    (record,) = tmp_path.rglob("fine_tuned.json")
    assert read_result(record.parent.parent).threads == 1


def test_a_failed_trial_that_is_run_again_takes_the_threads_that_it_is_given_now(tmp_path):
    sweep, before, used = sweep_in(tmp_path), torch.get_num_threads(), []

    def fails(trial):
        used.append(torch.get_num_threads())
        raise OSError("the disk is gone")

    try:
        for threads in (2, 1):
            torch.set_num_threads(threads)
            result = run_trial(
                *(sweep.trials[0], tmp_path / sweep.trials[0].folder, sweep.protocol, fails),
                device=torch.device("cpu"),
                output=TrialOutput(False, False),
                send=lambda message: None,
            )
            assert (result.status, result.threads) == ("failed", threads)
    finally:
        torch.set_num_threads(before)
    assert used == [2, 1]


def test_what_a_killed_repetition_left_is_no_model_and_is_removed(in_this_process, undisturbed):
    (record,) = undisturbed.rglob("fine_tuned.json")
    trial = record.parents[1]
    remains = [trial.with_name(f".{word}-{trial.name}") for word in ("again", "before")]
    for place in remains:
        shutil.copytree(trial, place)
    assert kept_folder(undisturbed) == record.parent
    run_sweep(sweep_in(undisturbed), 1)
    assert [place for place in remains if place.exists()] == []


def test_a_model_survives_the_repetition_of_its_trial_for_other_reasons(
    in_this_process, undisturbed
):
    """As for predictions that were not asked for before, with --keep none."""
    (record,) = undisturbed.rglob("fine_tuned.json")
    kept = kept_in(undisturbed)
    sweep = sweep_in(undisturbed, keep="none")
    (trial,) = chosen_trials(undisturbed, sweep.trials)
    context = SimpleNamespace(
        folder=undisturbed, protocol=sweep.protocol, output=TrialOutput(True, False)
    )
    list(sweep_module.run_trials([trial], context, ["cpu"]))
    assert kept_in(undisturbed) == kept


def test_a_repetition_that_fails_ends_with_status_1_and_leaves_the_scores(
    in_this_process, tmp_path, monkeypatch, capsys
):
    run_sweep(sweep_in(tmp_path, keep="none"), 1)
    before = {place: place.read_text() for place in tmp_path.rglob("result.json")}
    monkeypatch.setattr(trial_module, "_fine_tune", lambda *arguments: 1 / 0)
    sweep = sweep_in(tmp_path)
    with pytest.raises(SystemExit) as ended:
        report(sweep, has_failed=run_sweep(sweep, 1))
    assert ended.value.code == 1
    assert {place: place.read_text() for place in tmp_path.rglob("result.json")} == before


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
