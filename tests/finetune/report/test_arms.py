"""Rows of arms: medians over seeds of pre-training, against numbers worked out by hand."""

import csv
import json
import statistics

import pytest

from finetune.__main__ import main
from finetune.report.entries import caption, report_of
from finetune.report.page import print_table
from pretrain.config.errors import ConfigError
from pretrain.reports.table import as_csv
from tests.finetune.report.score_case import best_of, table_of, texts, write_result
from tests.pretrain.commands.test_compare import write_run

# RTE by run: of each rate the scores of its seeds of fine-tuning.
RATES = {
    "a-seed0": {1e-3: [0.50, 0.54, 0.90], 2e-3: [0.60, 0.61, 0.65]},
    "a-seed1": {1e-3: [0.70, 0.71, 0.75], 2e-3: [0.10, 0.20, 0.30]},
    "a-seed2": {1e-3: [0.55, 0.56, 0.57], 2e-3: [0.10, 0.20, 0.30]},
    "b-seed0": {1e-3: [0.80, 0.81, 0.82]},
}
STEPS = 40  # of the runs that `write_run` writes


def write_arm(folder, name, seed, rates, *words, task="RTE", step=STEPS, **run):
    """Write a run, and its results in its folder, as `tupelo finetune run RUN` leaves them."""
    if not (folder / "run.json").exists():
        write_run(folder, "--name", name, "--seed", str(seed), *words, **run)
        (folder / "result.json").write_text(json.dumps({"step": STEPS}))
    source = f"{folder}/checkpoints/step_{step:08d}"
    for rate, scores in rates.items():
        for number, score in enumerate(scores):
            where = {"model": name, "source": source, "step": step, "rate": rate, "seed": number}
            write_result(folder / "finetune" / "tupe", task, score, **where)
    return folder


@pytest.fixture
def runs(tmp_path):
    return [
        write_arm(tmp_path / place, place[0], place[-1], rates) for place, rates in RATES.items()
    ]


def scores_of_runs(arm):
    """Return the best median of each run of an arm."""
    return [
        max(statistics.median(scores) for scores in rates.values())
        for place, rates in RATES.items()
        if place.startswith(arm)
    ]


def test_the_score_of_an_arm_is_the_median_of_its_runs_each_at_its_own_best_rate(runs):
    found = texts(table_of(*runs))
    median, ends = statistics.median(scores_of_runs("a")), scores_of_runs("a")
    assert list(found) == [
        *("a (3 seeds)", "b", "a (a-seed0)", "a (a-seed1)", "a (a-seed2)"),
    ]
    value, spread = found["a (3 seeds)"]["RTE"]
    assert value == f"{100 * median:.1f}" == "61.0"
    assert spread == f"{100 * min(ends):.1f} - {100 * max(ends):.1f}"
    assert found["a (a-seed1)"]["RTE"] == ["71.0", "70.0 - 75.0"]
    assert best_of(table_of(*runs[:3]), "RTE") == ["a (3 seeds)"]  # not among the runs of an arm


def test_a_run_that_diverged_is_the_worst_of_its_arm_and_one_without_scores_is_none(tmp_path):
    for seed, scores in enumerate(([0.6] * 3, ["diverged"] * 3, [0.7] * 3, ["failed"] * 3)):
        write_arm(tmp_path / f"a-seed{seed}", "a", seed, {1e-3: scores})
    entry = texts(table_of(tmp_path))["a (4 seeds)"]["RTE"]
    assert entry == ["60.0", "60.0 - 70.0", "2 of 4 seeds"]  # of -inf, 60, 70
    (line, *_) = csv.DictReader(as_csv(report_of(table_of(tmp_path), []).numbers).splitlines())
    numbers = [line[name] for name in ("score", "seeds", "finished", "diverged")]
    assert numbers == ["60", "4", "2", "1"]


def test_the_average_of_an_arm_is_the_median_of_those_of_its_runs(tmp_path):
    pairs = [(0.2, 0.9), (0.5, 0.5), (0.9, 0.3)]
    for seed, scores in enumerate(pairs):
        for task, score in zip(("CoLA", "RTE"), scores, strict=True):
            write_arm(tmp_path / f"a-seed{seed}", "a", seed, {1e-3: [score]}, task=task)
    averages = [100 * statistics.fmean(pair) for pair in pairs]
    entry = texts(table_of(tmp_path))["a (3 seeds)"]["average"]
    ends = f"{min(averages):.1f} - {max(averages):.1f}"
    assert entry == [f"{statistics.median(averages):.1f}", ends]
    write_arm(tmp_path / "a-seed3", "a", 3, {1e-3: [0.5]}, task="RTE")
    assert texts(table_of(tmp_path))["a (4 seeds)"]["average"] == ["-", "lacks CoLA"]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "b"},
        {"words": ("--learning_rate.peak", "1e-4")},
        {"run": {"training_data": "other text"}},
        {"step": 20},  # not the end
        {"seed": 0},  # a repetition
    ],
)
def test_runs_that_differ_in_more_than_the_seed_are_no_arm(tmp_path, other):
    case = {"name": "a", "seed": 1, "words": (), "run": {}, "step": STEPS, **other}
    write_arm(tmp_path / "one", "a", 0, {1e-3: [0.5]})
    write_arm(
        *(tmp_path / "other", case["name"], case["seed"], {1e-3: [0.6]}, *case["words"]),
        **{"step": case["step"], **case["run"]},
    )
    assert table_of(tmp_path).arms == []


def test_ends_of_runs_of_equal_hours_are_an_arm_whatever_their_steps(tmp_path):
    for seed, step in enumerate((1990, 2013)):
        folder = write_arm(tmp_path / f"a-seed{seed}", "a", seed, {1e-3: [0.5]}, step=step)
        (folder / "result.json").write_text(json.dumps({"step": step}))
    assert texts(table_of(tmp_path))["a (2 seeds)"]["steps"] == ["1,990 - 2,013"]


def test_arms_of_one_name_are_told_apart_by_the_folders_of_their_runs(tmp_path):
    for place, rate in (("first", "1e-3"), ("second", "1e-4")):
        for seed in (0, 1):
            words = ("--learning_rate.peak", rate)
            write_arm(tmp_path / place / f"a-seed{seed}", "a", seed, {1e-3: [0.5]}, *words)
    names = list(texts(table_of(tmp_path)))
    assert names[:2] == ["a (first, 2 seeds)", "a (second, 2 seeds)"]


def test_runs_that_are_not_there_any_more_have_their_own_rows(runs, tmp_path):
    for run in runs:
        (run / "run.json").unlink()
    table = table_of(*runs)
    assert table.arms == [] and len(table.listed) == 4


def test_csv_names_the_arm_the_seed_and_the_folder_of_each_run(runs):
    table = table_of(*runs)
    lines = list(csv.DictReader(as_csv(report_of(table, []).numbers).splitlines()))
    assert [(line["model"], line["arm"], line["pretraining_seed"]) for line in lines] == [
        ("a (3 seeds)", "a (3 seeds)", ""),
        ("b", "", ""),
        *((f"a (a-seed{seed})", "a (3 seeds)", str(seed)) for seed in range(3)),
    ]
    assert [line["learning_rate"] for line in lines] == ["", "0.001", "0.002", "0.001", "0.001"]
    assert [line["run"] for line in lines] == ["", *(run.name for run in [runs[-1], *runs[:-1]])]
    assert "Rows of several runs: median (range) over their seeds of pre-trai" in caption(table)


def test_a_page_and_a_submission_are_of_runs(runs, tmp_path, capsys):
    print_table(runs, to=tmp_path / "out")
    page = (tmp_path / "out/index.html").read_text()
    assert page.index("<span>a (3 seeds)") < page.index("<span>a (a-seed0)")
    assert "a (a-seed2): weights from " in page
    with pytest.raises(ConfigError, match=r"choose --model of a \(a-seed0\), a \(a-seed1\), "):
        main(["submission", *map(str, runs), "--to", str(tmp_path / "sent")])
