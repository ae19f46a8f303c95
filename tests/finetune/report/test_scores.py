"""Scores of results that the tests write, against numbers worked out by hand."""

import json
import re

import numpy as np
import pytest

from finetune.report.entries import shown
from finetune.report.page import notes
from finetune.report.score_table import MAJORITY, score_table
from finetune.results.sweep_results import read_sweep_results
from pretrain.config.errors import ConfigError
from tests.finetune.report.score_case import (
    best_of,
    scores_of,
    table_of,
    texts,
    write_result,
    write_sweep_record,
)

# TUPE's Table 2: MNLI-m, MNLI-mm, QNLI, QQP, SST, CoLA, MRPC, RTE, STS; average.
TUPE_TASKS = ("QNLI", "QQP", "SST-2", "CoLA", "MRPC", "RTE", "STS-B")
TUPE_TABLE_2 = {
    "BERT-A": ((84.77, 84.95, 91.78, 90.99, 92.75, 56.77, 87.90, 71.70, 89.60), 83.47),
    "TUPE-A": ((85.96, 85.96, 91.86, 91.11, 93.08, 63.36, 88.54, 71.54, 88.93), 84.48),
    "TUPE-R": ((86.26, 86.12, 92.48, 91.32, 93.08, 63.72, 89.98, 71.77, 89.33), 84.90),
    "tie-cls": ((86.03, 85.79, 91.97, 91.12, 92.86, 59.02, 88.86, 69.64, 88.78), 83.79),
    "BERT-A d": ((85.43, 85.23, 91.14, 91.00, 92.63, 60.32, 87.82, 71.58, 87.55), 83.63),
}


def notes_of(*folders):
    results = read_sweep_results(folders)
    return notes(score_table(results, "glue", "newest"), results)


def write_rates(sweep, task, rates):
    for rate, scores in rates.items():
        for seed, score in enumerate(scores):
            write_result(sweep, task, score, rate=rate, seed=seed)


def test_the_rate_with_the_best_median_counts_not_that_with_the_best_seed(tmp_path):
    rates = {1e-3: [0.60, 0.62, 0.64, 0.61, 0.70], 2e-3: [0.90, 0.50, 0.51, 0.40, 0.95]}
    write_rates(tmp_path, "RTE", rates)
    table = table_of(tmp_path)
    best = table.best(table.rows[0], "RTE")
    medians = {rate: np.median(scores) for rate, scores in rates.items()}
    assert best.learning_rate == max(medians, key=medians.get) == 1e-3
    assert best.median("dev") == pytest.approx(medians[1e-3])
    assert texts(table)["m"]["RTE"] == ["62.0", "60.0 - 70.0", "at 0.001"]


def test_on_mnli_one_rate_counts_for_both_sets(tmp_path):
    for rate, scores in {1e-3: (0.80, 0.70), 2e-3: (0.79, 0.75)}.items():
        write_result(tmp_path, "MNLI", scores_of("MNLI", *scores), rate=rate)
    found = texts(table_of(tmp_path))["m"]
    assert (found["MNLI-m"], found["MNLI-mm"]) == (["79.0", "at 0.002"], ["75.0", "at 0.002"])


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.7, 0.6, 0.8, "diverged", 0.9], 0.7),  # of -inf 0.6 0.7 0.8 0.9
        (["diverged", "diverged", 0.8, 0.7, 0.9], 0.7),
        (["diverged", 0.7, 0.8, 0.9], 0.75),
        (["failed", 0.7, 0.8, 0.9], 0.8),
        (["diverged", "diverged", "diverged", 0.7, 0.9], -np.inf),
        (["diverged", 0.9], -np.inf),
        (["failed", "failed"], None),
    ],
)
def test_a_diverged_seed_is_the_worst_and_a_failed_one_is_none(tmp_path, scores, expected):
    write_rates(tmp_path, "RTE", {1e-3: scores})
    table = table_of(tmp_path)
    assert table.best(table.rows[0], "RTE").median("dev") == pytest.approx(expected)
    value, *_, remark = texts(table)["m"]["RTE"]
    assert remark == f"{sum(s is not str(s) for s in scores)} of {len(scores)} seeds"
    words = {None: "failed", -np.inf: "diverged"}
    assert value == (words.get(expected) or f"{100 * expected:.1f}")


def test_a_task_outside_of_glue_counts_by_its_first_metric_and_not_in_the_average(tmp_path):
    write_result(tmp_path, "mine", {"dev": {"accuracy": 0.8, "macro_f1": 0.2}})
    write_result(tmp_path, "RTE", 0.6)
    write_result(tmp_path, "SST-2", 0.7)
    found = texts(table_of(tmp_path))["m"]
    assert list(found) == ["model", "SST-2", "RTE", "mine", "average"]
    assert (found["mine"], found["average"]) == (["80.0"], ["65.0"])


def test_a_task_of_ones_own_can_be_called_as_another_column(tmp_path):
    write_result(tmp_path, "model", {"dev": {"accuracy": 0.8}})
    assert texts(table_of(tmp_path)) == {"m": {"model": ["m"], "model (task)": ["80.0"]}}


def test_the_averages_of_tupes_table_2_follow_from_its_rows(tmp_path):
    for name, (numbers, _) in TUPE_TABLE_2.items():
        mnli = scores_of("MNLI", numbers[0] / 100, numbers[1] / 100)
        write_result(tmp_path, "MNLI", mnli, model=name)
        write_result(tmp_path, "WNLI", 0.1, model=name)  # not in their table
        for task, number in zip(TUPE_TASKS, numbers[2:], strict=True):
            write_result(tmp_path, task, number / 100, model=name)
    table = table_of(tmp_path, average="tupe")
    assert len(table.rows) == len(TUPE_TABLE_2)
    for row in table.rows:
        _, average = TUPE_TABLE_2[row.model]
        assert 100 * table.average(row) == pytest.approx(average, abs=0.0051)  # two decimals
    table = table_of(tmp_path)
    for row in table.rows:
        numbers, _ = TUPE_TABLE_2[row.model]
        nine = [np.mean(numbers[:2]), *numbers[2:], 10]
        assert 100 * table.average(row) == pytest.approx(np.mean(nine))


def test_a_row_that_lacks_a_task_has_no_average_and_says_which(tmp_path):
    for task in ("CoLA", "RTE"):
        write_result(tmp_path, task, 0.5, model="whole")
    write_result(tmp_path, "CoLA", 0.6, model="half")
    found = texts(table_of(tmp_path))
    assert found["half"]["average"] == ["-", "lacks RTE"]
    assert found["half"]["RTE"] == ["-"]
    assert found["whole"]["average"] == ["50.0"]


def test_steps_are_chosen_and_rows_stand_in_their_order(tmp_path):
    for step in (300_000, 1_000_000, 2_500):
        source = f"/runs/m/checkpoints/step_{step:08d}"
        write_result(tmp_path, "RTE", 0.6, step=step, source=source)
    new = {"pretrained": False, "source": "/runs/m/checkpoints/step_01000000"}
    write_result(tmp_path, "RTE", 0.5, model="m without pre-training", step=1_000_000, **new)
    (tmp_path / "majority.json").write_text(json.dumps({"RTE": scores_of("RTE", 0.52)}))

    def steps(which):
        rows = table_of(tmp_path, step=which).rows
        assert rows[0] == MAJORITY
        assert not rows[1].pretrained
        return [row.step for row in rows[2:]]

    assert steps("newest") == [1_000_000]
    assert steps("all") == [2_500, 300_000, 1_000_000]
    assert steps("300000") == [300_000]
    steps_of_rows = [row["steps"] for row in shown(table_of(tmp_path, step="all")).rows]
    assert steps_of_rows == ["", "", "2,500", "300,000", "1,000,000"]
    with pytest.raises(ConfigError, match="--checkpoint 7: .*2500, 300000, 1000000"):
        table_of(tmp_path, step="7")


def test_models_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for number in (1, 2):
        source = f"/runs/seed_{number}/bert_a/checkpoints/step_00000010"
        write_result(tmp_path / str(number), "RTE", 0.5, model="bert_a", source=source)
    table = table_of(tmp_path / "1", tmp_path / "2")
    labels = [table.label(row) for row in table.rows]
    assert labels == ["bert_a (seed_1/bert_a)", "bert_a (seed_2/bert_a)"]
    write_result(tmp_path / "1", "RTE", 0.5, model="bert_a", source="someone/bert_a", step=5)
    table = table_of(tmp_path / "1")
    assert "bert_a (someone/bert_a)" in map(table.label, table.every_row)


def test_runs_that_differ_in_the_seed_share_a_row_and_no_single_one_is_marked_as_best(tmp_path):
    for arm, scores in {"words": (0.5, 0.9, 0.6), "replaced": (0.7, "diverged", 0.8)}.items():
        for seed, score in enumerate(scores):
            name = f"{arm}-seed{seed}"
            changes = {"model": name, "source": f"/runs/x/{name}", "step": 10 + seed}
            write_result(tmp_path, "RTE", score, **changes)
            write_result(tmp_path, "CoLA", 0.5, **changes)
            write_result(tmp_path, "RTE", 0.4, pretrained=False, **changes)
    write_result(tmp_path, "RTE", 0.65, model="alone")
    table = table_of(tmp_path)
    found = texts(table)
    assert found["x/words, median of 3 runs"]["RTE"] == ["60.0", "50.0 - 90.0"]
    assert found["x/replaced, median of 3 runs"]["RTE"] == ["70.0", "70.0 - 80.0"]
    assert found["x/replaced, median of 3 runs"]["average"] == ["60.0", "60.0 - 65.0"]
    assert best_of(table, "RTE") == ["x/replaced, median of 3 runs"]
    assert [row["steps"] for row in shown(table).rows[-2:]] == ["", ""]
    for seed in (0, 1):  # of another folder, but the same last names
        write_result(tmp_path, "RTE", 0.2, model=f"m{seed}", source=f"/o/runs/x/words-seed{seed}")
    again = texts(table_of(tmp_path))
    assert again["/o/runs/x/words, median of 2 runs"]["RTE"][0] == "20.0"
    assert again["/runs/x/words, median of 3 runs"]["RTE"] == ["60.0", "50.0 - 90.0"]


def test_a_model_that_was_moved_during_its_sweep_stays_one_row(tmp_path):
    write_sweep_record(tmp_path, ["RTE"], [1e-3], [0, 1])
    write_result(tmp_path, "RTE", 0.5, seed=0)
    write_result(tmp_path, "RTE", 0.6, seed=1, source="/elsewhere/m")
    assert len(table_of(tmp_path).rows) == 1
    assert notes_of(tmp_path) == []


def test_the_same_trial_twice_counts_once_and_with_other_scores_is_refused(tmp_path):
    first = write_result(tmp_path / "a", "RTE", 0.5)
    write_result(tmp_path / "b", "RTE", 0.5)
    assert len(read_sweep_results([tmp_path, tmp_path / "a"]).trials) == 1
    other = write_result(tmp_path / "c", "RTE", 0.6)
    with pytest.raises(ConfigError, match=re.escape(f"{first} and {other}")):
        read_sweep_results([tmp_path])


def test_everything_that_went_wrong_or_is_missing_has_a_note(tmp_path):
    write_sweep_record(tmp_path, ["RTE", "CoLA"], [1e-3, 2e-3], [0, 1, 2])
    write_rates(tmp_path, "RTE", {1e-3: [0.6, "diverged", "diverged"]})
    write_result(tmp_path, "RTE", "failed", rate=2e-3, seed=1, reason="out of memory")
    write_result(tmp_path, "RTE", 0.5, rate=2e-3, seed=2, reason="a constant")
    write_result(tmp_path, "RTE", "diverged", model="new", pretrained=False)
    assert notes_of(tmp_path) == [
        "new, not pre-trained on RTE: 1 diverged, the first at 0.001, seed 0",
        "m on RTE: 2 diverged, the first at 0.001, seed 1",
        "m on RTE: 1 failed, the first at 0.002, seed 1: out of memory",
        "m on RTE: 1 with a remark, the first at 0.002, seed 2: a constant",
        "7 of 12 trials not run",
        "one seed: RTE",
        "different numbers of seeds: RTE",
        "best at the highest or lowest --learning_rates: RTE",
    ]


def test_different_precisions_and_learning_rates_have_a_note(tmp_path):
    for name, precision, rates in (("a", "bf16", [1e-3]), ("b", "fp32", [1e-3, 3e-3, 9e-3])):
        write_sweep_record(tmp_path / name, ["RTE"], rates, [0, 1], model=name)
        for rate in rates:
            for seed in (0, 1):
                write_result(
                    *(tmp_path / name, "RTE", 0.6 if rate == 3e-3 else 0.5),
                    **{"model": name, "rate": rate, "seed": seed, "precision": precision},
                )
    assert notes_of(tmp_path) == ["different learning rates: RTE", "different precisions: RTE"]


@pytest.mark.parametrize(
    ("one", "other", "different"),
    [
        ({}, {"epochs": 10}, r"epochs \(None and 10\)"),
        ({}, {"examples": "c"}, "examples of RTE"),
        ({"metrics": {"RTE": "f1"}}, {"metrics": {"RTE": "x"}}, r"--metric of RTE \(f1 and x\)"),
        # As of a run that was removed and trained again, between two sweeps of it.
        ({}, {"weights": "x"}, "weights of m"),
    ],
)
def test_sweeps_that_differ_in_more_than_models_and_tasks_are_refused(
    tmp_path, one, other, different
):
    for name, changes in (("a", one), ("b", other)):
        write_result(tmp_path / name, "RTE", 0.7)
        write_sweep_record(tmp_path / name, ["RTE"], [1e-3], [0], **changes)
    with pytest.raises(ConfigError, match=f"/a and .*/b cannot be .* differ in {different}; leave"):
        read_sweep_results([tmp_path])


def test_what_makes_no_table_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no result"):
        read_sweep_results([tmp_path])
    write_result(tmp_path / "tupe", "RTE", 0.5)
    write_result(tmp_path / "quick", "CoLA", 0.5, protocol="quick")
    with pytest.raises(ConfigError, match=r"protocol quick.*protocol tupe.*cannot be compared"):
        read_sweep_results([tmp_path])
    file = next(tmp_path.rglob("result.json"))
    file.write_text(file.read_text().replace('"step": null', f'"step": {10**400}'))
    with pytest.raises(ConfigError, match=r"result.json is damaged: step"):
        read_sweep_results([tmp_path])
    (tmp_path / "grid.json").write_text('{"tasks": 3}')
    with pytest.raises(ConfigError, match=r"grid.json is damaged"):
        read_sweep_results([tmp_path])
