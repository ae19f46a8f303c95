"""The metrics that a table counts by, shows and names."""

import csv
import json

import pytest

from finetune.report import per_class
from finetune.report.entries import caption, report_of, shown
from pretrain.config.errors import ConfigError
from pretrain.reports.table import as_csv
from tests.finetune.report.score_case import table_of, write_result, write_sweep_record

# Of each learning rate; the best one differs by metric.
RATES = {1e-3: {"accuracy": 0.9, "macro_f1": 0.4}, 2e-3: {"accuracy": 0.8, "macro_f1": 0.7}}


def write_rates(sweep, model="m"):
    for rate, metrics in RATES.items():
        write_result(sweep, "mine", {"dev": metrics}, rate=rate, model=model)


def written(table):
    """Return the lines of the CSV of a table."""
    return list(csv.DictReader(as_csv(report_of(table, []).numbers).splitlines()))


def best(table):
    return table.best(table.rows[-1], "mine")


@pytest.mark.parametrize(("metric", "rate"), [("accuracy", 1e-3), ("macro_f1", 2e-3)])
def test_the_main_metric_of_a_task_chooses_the_rate_and_is_in_table_and_caption(
    tmp_path, metric, rate
):
    write_rates(tmp_path)
    write_sweep_record(tmp_path, ["mine"], [1e-3, 2e-3], [0], {"mine": metric})
    majority = {"mine": {"dev": {"accuracy": 0.85, "macro_f1": 0.45}}}
    (tmp_path / "majority.json").write_text(json.dumps(majority))
    table = table_of(tmp_path)
    assert best(table).learning_rate == rate
    cells = [row["mine"] for row in shown(table).rows]
    scores = [majority["mine"]["dev"][metric], RATES[rate][metric]]
    shares = [f"{100 * score:.1f}" for score in scores]
    assert cells == [shares[0], f"{shares[1]}\nat {rate:g}"]
    name = {"accuracy": "accuracy", "macro_f1": "macro F1"}[metric]
    assert f"Metrics: mine {name}." in caption(table)
    lines = [line for line in written(table) if line["model"] == "m"]
    found = {(line["column"], line["metric"]): float(line["score"]) for line in lines}
    assert found == {
        ("mine", metric): pytest.approx(100 * RATES[rate][metric]),
        ("mine accuracy", "accuracy"): pytest.approx(100 * RATES[rate]["accuracy"]),
        ("mine macro F1", "macro_f1"): pytest.approx(100 * RATES[rate]["macro_f1"]),
    }


def test_a_main_metric_that_a_result_lacks_is_refused(tmp_path):
    write_rates(tmp_path)
    write_sweep_record(tmp_path, ["mine"], [1e-3], [0], {"mine": "matthews"})
    with pytest.raises(ConfigError, match=r"seed0 has no matthews: .*--metric of accuracy, macro"):
        table_of(tmp_path)


@pytest.mark.parametrize(("average", "value"), [("glue", "85.0"), ("tupe", "80.0")])
def test_both_metrics_of_mrpc_and_qqp_are_below_the_score_in_every_format(tmp_path, average, value):
    for task in ("MRPC", "QQP"):
        write_result(tmp_path, task, {"dev": {"accuracy": 0.8, "f1": 0.9}})
    table = table_of(tmp_path, average=average)
    found = shown(table)
    (row,) = found.rows
    assert row["MRPC"] == row["QQP"] == f"{value}\n80.0/90.0"
    assert found.as_latex([]).count(rf"\textbf{{{value}}} (80.0/90.0)") == 2
    assert found.as_markdown().count(f"**{value}** (80.0/90.0)") == 2
    assert found.as_text(80).count("80.0/90.0") == 2
    what = "mean of accuracy and F1" if average == "glue" else "accuracy"
    assert f"Metrics: MRPC {what}, QQP {what}. Average over MRPC, QQP, " in caption(table)
    lines = {line["column"]: line for line in written(table)}
    assert [(name, line["metric"], line["score"]) for name, line in lines.items()][:3] == [
        ("MRPC", "mean" if average == "glue" else "accuracy", value.removesuffix(".0")),
        ("MRPC accuracy", "accuracy", "80"),
        ("MRPC F1", "f1", "90"),
    ]


def test_both_metrics_are_medians_over_the_seeds_at_the_rate_of_the_score(tmp_path):
    pairs = [(0.70, 0.80), (0.72, 0.90), (0.74, 0.82)]
    for seed, (accuracy, f1) in enumerate(pairs):
        write_result(tmp_path, "MRPC", {"dev": {"accuracy": accuracy, "f1": f1}}, seed=seed)
        write_result(tmp_path, "MRPC", 0.5, seed=seed, rate=2e-3)
    (row,) = shown(table_of(tmp_path)).rows
    # 100 x the means 0.75, 0.81, 0.78; the medians of 70, 72, 74 and of 80, 90, 82
    assert row["MRPC"].split("\n") == ["78.0", "72.0/82.0", "75.0 - 81.0", "at 0.001"]


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", "b"), ("b", "b"), ("a", "a")],
        [(["a"], ["a", "b"]), ([], ["b"]), (["a"], [])],
        [([], []), (["a"], [])],  # one label
        [([], []), ([], [])],
    ],
)
def test_scores_by_class_are_those_of_a_plain_loop(pairs):
    *rows, mean = per_class._rows(pairs)
    for row in rows:
        both = [(row["class"] in ours, row["class"] in theirs) for ours, theirs in pairs]
        right, wrong, missed = (both.count(kind) for kind in ((1, 1), (0, 1), (1, 0)))
        expected = [right / max(1, n) for n in (right + wrong, right + missed)]
        expected.append(right / max(1, right + (wrong + missed) / 2))
        scores = [float(row[name]) for name in per_class.SCORES]
        assert scores == pytest.approx([100 * one for one in expected], abs=0.051)
        assert int(row["examples"]) == right + missed
    f1 = sum(float(row["F1"]) for row in rows) / max(1, len(rows))
    assert float(mean["F1"]) == pytest.approx(f1, abs=0.11)
