"""The scores of a model card are those of the table of fine-tuning."""

import json

import pytest

from pretrain.convert.exports.model_card import score_rows


def write(run, task, rate, seed, scores, **changes):
    folder = run / f"finetune/quick/{task}/m/lr_{rate}/seed_{seed}"
    folder.mkdir(parents=True)
    fields = {"step": 5, "pretrained": True, "task": task, "protocol": "quick", **changes}
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
    ((*_, score, seeds, rate),) = score_rows(tmp_path, 5)
    assert (score, seeds, rate) == (("70.0", "3", best) if best == "0.1" else ("90.0", "1", best))


def test_one_rate_counts_for_all_development_sets(tmp_path):
    write(tmp_path, "MNLI", 0.1, 0, accuracy(0.8, 0.5))
    write(tmp_path, "MNLI", 0.2, 0, accuracy(0.7, 0.7))
    assert score_rows(tmp_path, 5) == [
        ["quick", "MNLI", "dev_1", "accuracy", "70.0", "1", "0.2"],
        ["quick", "MNLI", "dev_2", "accuracy", "70.0", "1", "0.2"],
    ]


def test_other_steps_and_new_weights_are_not_counted(tmp_path):
    write(tmp_path, "RTE", 0.1, 0, accuracy(0.5))
    write(tmp_path, "RTE", 0.1, 1, accuracy(0.9), step=6)
    write(tmp_path, "RTE", 0.1, 2, accuracy(0.9), pretrained=False)
    assert [row[-3:] for row in score_rows(tmp_path, 5)] == [["50.0", "1", "0.1"]]
