"""The scores of a model card are those of the table of fine-tuning."""

import json

import pytest
import yaml
from huggingface_hub import ModelCard

from data_prep.shards.manifest import Manifest
from pretrain.config.settings import LayerDropSettings
from pretrain.convert.exports.card_header import card_header
from pretrain.convert.exports.card_text import layer_drop_phrase
from pretrain.convert.exports.model_card import score_rows


def write(run, task, rate, seed, scores, *, sweep="quick", model="m", **changes):
    folder = run / f"finetune/{sweep}/{task}/{model}/lr_{rate}/seed_{seed}"
    folder.mkdir(parents=True)
    fields = {"model": model, "step": 5, "pretrained": True, "task": task, "protocol": "quick"}
    fields |= changes
    ended = scores if isinstance(scores, str) else "finished"
    found = {} if ended == scores else scores
    result = {**fields, "learning_rate": rate, "status": ended, "scores": found}
    (folder / "result.json").write_text(json.dumps(result))


def accuracy(*values):
    return {f"dev_{place}": {"accuracy": value} for place, value in enumerate(values, start=1)}


@pytest.mark.parametrize(("ended", "best"), [("diverged", "0.1"), ("failed", "0.2")])
def test_a_rate_at_which_most_seeds_diverged_is_not_the_best(tmp_path, ended, best):
    for seed, value in enumerate((0.6, 0.7, 0.8)):
        write(tmp_path, "RTE", 0.1, seed, accuracy(value))
    for seed, value in enumerate((0.9, ended, ended)):
        scores = value if value == ended else accuracy(value)
        write(tmp_path, "RTE", 0.2, seed, scores)
    ((*_, score, seeds, rate),) = score_rows(tmp_path, 5, "m")
    assert (score, seeds, rate) == (("70.0", "3", best) if best == "0.1" else ("90.0", "1", best))


def test_the_metric_that_the_sweep_was_asked_for_chooses_the_rate(tmp_path):
    for rate, matthews in ((0.1, 0.3), (0.2, 0.6)):
        scores = {"dev": {"accuracy": 1 - matthews, "matthews": matthews}}
        write(tmp_path, "mine", rate, 0, scores)
    assert {row[-1] for row in score_rows(tmp_path, 5, "m")} == {"0.1"}
    grid = tmp_path / "finetune/quick/grid.json"
    grid.write_text(json.dumps({"metrics": {"mine": "matthews"}}))
    assert {row[-1] for row in score_rows(tmp_path, 5, "m")} == {"0.2"}


def test_one_rate_counts_for_all_development_sets(tmp_path):
    write(tmp_path, "MNLI", 0.1, 0, accuracy(0.8, 0.5))
    write(tmp_path, "MNLI", 0.2, 0, accuracy(0.7, 0.7))
    assert score_rows(tmp_path, 5, "m") == [
        ["quick", "MNLI", "dev_1", "accuracy", "70.0", "1", "0.2"],
        ["quick", "MNLI", "dev_2", "accuracy", "70.0", "1", "0.2"],
    ]


def test_sweeps_of_tasks_of_one_name_are_not_mixed(tmp_path):
    for sweep, value in (("quick", 0.5), ("others", 0.9)):
        write(tmp_path, "own", 0.1, 0, accuracy(value), sweep=sweep)
    assert score_rows(tmp_path, 5, "m") == [
        ["quick, others", "own", "dev_1", "accuracy", "90.0", "1", "0.1"],
        ["quick, quick", "own", "dev_1", "accuracy", "50.0", "1", "0.1"],
    ]


def test_other_steps_and_new_weights_are_not_counted(tmp_path):
    write(tmp_path, "RTE", 0.1, 0, accuracy(0.5))
    write(tmp_path, "RTE", 0.1, 1, accuracy(0.9), step=6)
    write(tmp_path, "RTE", 0.1, 2, accuracy(0.9), pretrained=False)
    assert [row[-3:] for row in score_rows(tmp_path, 5, "m")] == [["50.0", "1", "0.1"]]


@pytest.mark.parametrize("model", ["m", "run_of_seed_1"])
def test_other_models_of_a_sweep_are_not_counted(tmp_path, model):
    """Those of one name are called by their folders there."""
    run = tmp_path / "run_of_seed_1"
    write(run, "RTE", 0.1, 0, accuracy(0.5), model=model)
    write(run, "RTE", 0.1, 0, accuracy(0.9), model="run_of_seed_2")
    assert [row[-3:] for row in score_rows(run, 5, "m")] == [["50.0", "1", "0.1"]]


@pytest.mark.parametrize(
    ("schedule", "phrase"),
    [
        ("none", "none"),
        ("progressive", "progressive to 0.5"),
        ("linear_down", "linear_down to 0.5"),
        ("constant", "constant at 0.5"),
        ("reverse", "reverse from 0.5"),
        ("linear_up", "linear_up from 0.5"),
        ("stages", "stages 0.5, 0.667, 0.833, 1"),
    ],
)
def test_a_card_says_which_keep_ratios_a_schedule_has_and_where(schedule, phrase):
    assert layer_drop_phrase(LayerDropSettings(schedule=schedule)) == phrase


def header(licence, scores=(), **values):
    """Return the header of a card as the Hub reads it."""
    manifest = Manifest.model_construct(licence=licence, settings=values)
    text = card_header(manifest, scores, name="a: b", is_discriminator=False)
    ModelCard(f"---\n{text}\n---\n")  # raises where the Hub would refuse it
    return yaml.safe_load(text)


def test_the_header_states_licence_data_and_language_where_they_are_known():
    wikipedia = "CC BY-SA 4.0 (Wikipedia)"
    assert header(wikipedia, language="no")["license"] == "cc-by-sa-4.0"
    assert header(wikipedia, language="no")["language"] == "no"
    mixed = header(f"see the card of a/b; {wikipedia}", language="en: x")
    assert (mixed["license"], mixed["license_name"]) == ("other", "that-of-the-training-data")
    assert mixed["datasets"] == ["a/b"] and "language" not in mixed
    assert "datasets" not in header("that of the text files")


def test_the_header_has_the_scores_that_are_numbers(tmp_path):
    write(tmp_path, "RTE", 0.1, 0, accuracy(0.75))
    write(tmp_path, "CoLA", 0.1, 0, "diverged")
    found = header("x", score_rows(tmp_path, 5, "m"))["model-index"]
    ((result,), name) = found[0]["results"], found[0]["name"]
    assert name == "a: b" and result["dataset"] == {"type": "rte", "name": "RTE", "split": "dev_1"}
    (metric,) = result["metrics"]
    assert (metric["type"], metric["value"]) == ("accuracy", 0.75)
