"""The whole command on a tiny run, in this process."""

import csv
import io
import json
import random
import shutil
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout

import pytest
import torch
from transformers import pipeline

from data_prep.files.errors import UserError
from finetune.results.model_folder import kept_folder
from finetune.results.result import read_result
from finetune.results.sweep_results import read_sweep_results
from finetune.sweep import references
from finetune.sweep.references import load_model, read_model_refs
from pretrain.config.errors import ConfigError
from pretrain.convert.exports.in_transformers import quiet
from tests.finetune.conftest import trials_here
from tests.finetune.fine_tuning_case import tiny_pretrained
from tests.finetune.small_glue import write_small_glue
from tupelo.__main__ import main

NO_TASK = "name tasks of a suite .* or one of your own .* and not both"


class Command:
    """`tupelo finetune run` on the tiny run and task."""

    def __init__(self, run, files, folder):
        self.run, self.files, self.folder = run, files, folder

    def words(self, *more):
        return [
            *("finetune", "run", str(self.run), "--to", str(self.folder), "--name", "begins"),
            *("--train", str(self.files / "train.tsv"), "--dev", str(self.files / "dev.tsv")),
            *("--test", str(self.files / "test.tsv"), "--text", "text", "--label", "begins"),
            *("--batch", "8", "--epochs", "1", "--seeds", "3", "--learning_rates", "1e-3", *more),
        ]

    def results(self):
        return {
            str(file.parent.relative_to(self.folder)): read_result(file.parent)
            for file in sorted(self.folder.rglob("result.json"))
        }

    def models(self):
        """Return the folder of the trial of each kept model."""
        files = self.folder.rglob("model/config.json")
        return sorted(str(file.parents[1].relative_to(self.folder)) for file in files)


@pytest.fixture(scope="module")
def undisturbed(run, files, tmp_path_factory):
    started = Command(run, files, tmp_path_factory.mktemp("sweep"))
    options = ("--from-scratch", "--learning_rates", "1e-3,1e30")
    output, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        trials_here(patch)
        main(started.words(*options))
    started.output, started.errors = output.getvalue(), errors.getvalue()
    return started


def test_every_trial_has_a_result_and_diverged_ones_are_listed(undisturbed):
    results = undisturbed.results()
    models = ("small-step_00000020", "small-without-pre-training")
    assert results.keys() == {
        f"begins/{model}-{rate}-seed{seed}"
        for model in models
        for rate in ("0.001", "1e_30")
        for seed in range(3)
    }
    for name, result in results.items():
        assert result.status == ("diverged" if "1e_30" in name else "finished"), result
        assert result.pretrained == ("without" not in name)
    notes = " ".join(undisturbed.output.split()).split("note: ")[1:]
    listed = [note for note in notes if " 3 diverged, the first at 1e+30" in note]
    assert len(listed) == 2 and all("the loss is nan at step" in line for line in listed)
    lines = undisturbed.output.splitlines()
    assert lines[0] == f"12 trials to {undisturbed.folder}"
    assert any(line.startswith("[12/12] begins small") for line in lines)
    assert "majority class" in undisturbed.output


def test_the_model_of_the_median_seed_is_kept_and_predicts_what_its_trial_predicted(
    undisturbed, files, capsys, tmp_path
):
    renamed = tmp_path / "test.tsv"
    renamed.write_text((files / "test.tsv").read_text().replace("text", "note", 1))
    places = undisturbed.models()
    assert [place.rpartition("-0.001-seed")[0] for place in places] == [
        "begins/small-step_00000020",
        "begins/small-without-pre-training",
    ]
    results = undisturbed.results()
    for place in places:
        seeds = [results[f"{place[:-1]}{seed}"] for seed in range(3)]
        scores = sorted(result.scores["dev"]["accuracy"] for result in seeds)
        assert results[place].scores["dev"]["accuracy"] == scores[1]
        words = ["predict", str(undisturbed.folder / place), str(renamed), "--text"]
        with pytest.raises(ConfigError, match="the model was trained on text"):
            main(["finetune", *words, "note", "other"])
        main(["finetune", *words, "note"])
        found = [row["prediction"] for row in csv.DictReader(capsys.readouterr().out.splitlines())]
        trial = undisturbed.folder / place / "predictions_test.json"
        assert found == [row["label"] for row in json.loads(trial.read_text())]
        assert "train.tsv" in (undisturbed.folder / place / "model/README.md").read_text()
    last = undisturbed.output.splitlines()
    model = undisturbed.folder / places[0] / "model"
    assert f"use a model: tupelo finetune predict {model} FILE" in last


def test_the_classes_of_a_sweep_are_those_of_the_kept_trial(undisturbed):
    by_class = undisturbed.folder / "classes.csv"
    assert f" | by class: {by_class} | " in undisturbed.output
    every = csv.DictReader(by_class.read_text().splitlines())
    rows = [row for row in every if row["model"] == "small step 20"]
    file = undisturbed.folder / undisturbed.models()[0] / "predictions_dev.json"
    pairs = Counter((line["expected"], line["label"]) for line in json.loads(file.read_text()))
    assert [row["class"] for row in rows] == ["no", "yes", "macro average"]
    for row, name, other in zip(rows, ("no", "yes"), ("yes", "no"), strict=False):
        right, missed, wrong = pairs[name, name], pairs[name, other], pairs[other, name]
        assert int(row[f"as {name}"]) == right
        assert int(row[f"as {other}"]) == missed
        recall, precision = right / (right + missed), right / max(1, right + wrong)
        f1 = 2 * right / (2 * right + missed + wrong)
        for column, value in (("recall", recall), ("precision", precision), ("F1", f1)):
            assert float(row[column]) == pytest.approx(100 * value, abs=0.051)


def test_several_labels_are_learned_and_predicted_here_and_by_transformers(
    run, tmp_path, in_this_process, capsys
):
    draw, file, to = random.Random(1), tmp_path / "train.csv", tmp_path / "to"
    texts = [" ".join(draw.choices("abcde", k=6)) for _ in range(80)]
    labels = ["; ".join(letter for letter in "abc" if letter in text) for text in texts]
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [("id", "text", "label"), *zip(range(80), texts, labels, strict=True)]
        )
    options = ["--multi_label", "--class_weights", "balanced", "--learning_rates", "1e-3"]
    options += ["--seeds", "1", "--epochs", "2", "--to", str(to)]
    main(["finetune", "run", str(run), "--train", str(file), *options])
    assert "micro F1" in capsys.readouterr().out
    main(["finetune", "predict", str(to), str(file)])
    found = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["id"], row["label"]) for row in found] == [
        (str(n), label) for n, label in enumerate(labels)
    ]
    assert '("A text.", top_k=None, truncation' in (kept_folder(to) / "README.md").read_text()
    with quiet():
        classify = pipeline("text-classification", str(kept_folder(to)), trust_remote_code=True)
    for row, scores in zip(found, classify(texts, top_k=None), strict=True):
        shares = {each["label"]: each["score"] for each in scores}
        assert {name: float(row[f"probability_{name}"]) for name in "abc"} == pytest.approx(
            shares, abs=1e-5
        )
        assert row["prediction"] == ";".join(name for name in "abc" if shares[name] > 0.5)
    (kept,) = to.rglob("predictions_dev.json")
    for line in json.loads(kept.read_text()):
        assert ";".join(line["label"]) == found[int(line["identity"])]["prediction"]


def test_a_fine_tuned_model_starts_another_task(undisturbed, files, tmp_path, capsys):
    model = undisturbed.folder / undisturbed.models()[0] / "model"
    task = ["--train", str(files / "train.tsv"), "--dev", str(files / "dev.tsv")]
    task += ["--label", "begins", "--name", "again", "--dry-run"]
    with pytest.raises(ConfigError, match="say where the results go, such as --to"):
        main(["finetune", "run", str(model), *task])
    main(["finetune", "run", str(model), *task, "--to", str(tmp_path / "to")])
    assert "models: small step 20 after begins\n" in capsys.readouterr().out


def test_curves_are_written_for_tensorboard(undisturbed):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(
        str(undisturbed.folder / "begins/small-step_00000020-0.001-seed1")
    ).Reload()
    assert [event.step for event in events.Scalars("dev/accuracy")] == [1]
    assert events.Scalars("train/loss")[-1].step == 8


def test_a_dry_run_prints_the_trials_and_writes_nothing(run, files, tmp_path, capsys):
    started = Command(run, files, tmp_path / "sweep")
    main([*started.words("--checkpoints", "all", "--from-scratch"), "--dry-run"])
    output = capsys.readouterr().out
    # 2 checkpoints and new weights, 3 seeds; 64 rows are 8 steps.
    assert output.splitlines()[2].split() == ["begins", "64", "1", "8", "9", "0", "9"]
    assert "models: small step 10, small without pre-training, small step 20" in output
    assert f"to run: 9 trials, {9 * 8} steps" in output
    assert not started.folder.exists()


def test_another_metric_of_a_sweep_that_is_over_makes_another_table_and_trains_nothing(
    run, files, tmp_path, capfd, in_this_process
):
    words = [
        *("finetune", "run", str(run), "--train", str(files / "train.tsv"), "--label", "begins"),
        *("--to", str(tmp_path), "--epochs", "1", "--seeds", "1", "--learning_rates", "1e-3"),
    ]
    main(words)
    assert "Metrics: own accuracy." in " ".join(capfd.readouterr().out.split())
    (before,) = read_sweep_results([tmp_path]).trials
    main([*words, "--metric", "matthews"])
    output = capfd.readouterr().out
    assert "0 trials to" in output and "Metrics: own Matthews." in " ".join(output.split())
    (after,) = read_sweep_results([tmp_path]).trials
    assert after.result.scores == before.result.scores
    assert list(before.result.scores["dev"])[0] == "accuracy"
    assert list(after.result.scores["dev"])[0] == "matthews"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tasks rte", NO_TASK),
        ("--tasks rtee --glue x", "no task 'rtee'.*RTE"),
        ("--train x.tsv --glue y", NO_TASK),
        ("--train x.tsv --text a b c", "texts"),
        ("--train x.tsv --metric acc", "metric='acc': input should be 'accuracy'"),
        ("--train x.tsv --at-once 0", "0: not a whole number of at least 1"),
        ("--train x.tsv --protocl y", "there is no --protocl; did you mean --protocol"),
        ("--train x.tsv --epochs 0", "epochs='0'"),
        ("--train {files}/train.tsv --label begin", "no column 'begin'.*begins"),
        ("{task} --both_orders own", "both_orders names own, w"),
        ("{run} --train x.tsv", "^say where the results go, such as --to"),
        ("{files} {task} --to {run}/to", "holds no pre-trained model"),
        ("{task} --checkpoints 15", "no checkpoint of step 15; it has: 10, 20"),
        ("{task} --to {files}/train.tsv", "cannot write .*: File exists; choose another folder"),
    ],
)
def test_what_is_wrong_with_a_command_is_one_line(run, files, words, message):
    places = {"run": run, "files": files, "task": f"--train {files}/train.tsv --label begins"}
    with pytest.raises(UserError, match=message.format(**places)):
        main(["finetune", "run", str(run), *words.format(**places).split()])


def test_a_sweep_that_is_stopped_before_its_first_result_may_be_another(run, files, tmp_path):
    command = Command(run, files, tmp_path / "to")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("finetune.sweep.sweep.run_sweep", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main(command.words())
    main(command.words("--epochs", "2", "--dry-run"))


def test_a_model_keeps_the_name_that_it_has_in_its_sweep(tmp_path, monkeypatch):
    """Whichever other runs are named beside it, so that no trial of it is repeated."""
    models = {}
    for number, folder in enumerate(("first", "twin")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").touch()
        pretrained = tiny_pretrained()._replace(name="small")
        pretrained.weights["head.output_bias"] += number  # of another seed
        models[str(tmp_path / folder)] = pretrained
    monkeypatch.setattr(references, "load_model", lambda place, checkpoint: models[place])
    first, twin = models

    def names(places, recorded=()):
        refs = read_model_refs(places, ["newest"], from_scratch=False, recorded=recorded)
        return refs, [ref.model for ref in refs]

    recorded, found = names([first])
    assert found == ["small"]
    recorded, found = names([first, twin], recorded)
    assert found == ["small", "twin"]
    assert names([twin], recorded)[1] == ["twin"]
    monkeypatch.setattr(references, "_digest", lambda *_, **of_shape: "equal")
    refs = read_model_refs([first, twin], ["newest"], from_scratch=True)
    assert [ref.model for ref in refs if not ref.pretrained] == ["first"]


@pytest.mark.parametrize("checkpoints", [["newest"], ["all"]])
def test_a_reference_stays_at_its_checkpoint_when_pre_training_goes_on(run, tmp_path, checkpoints):
    growing = shutil.copytree(run, tmp_path / "run")
    model = [*read_model_refs([str(growing)], checkpoints, from_scratch=False)][-1]
    shutil.copytree(growing / "checkpoints/step_00000010", growing / "checkpoints/step_00000030")
    expected = load_model(model.source)
    (found,) = read_model_refs([str(growing)], ["20"], from_scratch=False)
    assert (model.step, expected.step, found) == (20, 20, model)
    weights = load_model(found.source).weights
    assert all(torch.equal(weights[name], expected.weights[name]) for name in weights)


@pytest.mark.usefixtures("in_this_process")
def test_tasks_of_a_suite_are_swept_and_shown(run, tmp_path, capfd):
    glue, sweep = write_small_glue(tmp_path / "data"), tmp_path / "sweep"
    words = ["--tasks", "mnli", "STSB", "--glue", str(glue), "--to", str(sweep), "--predict-test"]
    words += ["--epochs", "1", "--seeds", "1", "--learning_rates", "1e-3"]
    main(["finetune", "run", str(run), *words])
    columns = ["model", "steps", "STS-B", "MNLI-m", "MNLI-mm"]
    assert columns in [line.split()[:5] for line in capfd.readouterr().out.splitlines()]
    results = [read_result(file.parent) for file in sweep.rglob("result.json")]
    splits = {result.task: [*result.scores] for result in results}
    assert splits == {"MNLI": ["dev_matched", "dev_mismatched"], "STS-B": ["dev"]}
    names = {file.name for file in sweep.rglob("predictions_test*.json")}
    splits = ("test", "test_matched", "test_mismatched")
    assert names == {f"predictions_{split}.json" for split in splits}
