"""A suite is one file and one line: its tasks are swept, averaged, listed and submitted."""

import csv
import statistics

import pytest

from finetune.__main__ import main
from finetune.results.result import read_result
from finetune.tasks.catalog import SUITES, known_tasks
from finetune.tasks.task import plain
from tests.finetune.report.score_case import write_result
from tests.finetune.toy_suite import TASKS, TOY, write_toy


@pytest.fixture
def toy(monkeypatch, tmp_path):
    monkeypatch.setitem(SUITES, "toy", TOY)
    return write_toy(tmp_path / "data")


def test_names_of_suites_tasks_and_averages_are_different(toy):
    for count, names in (
        (9 + 2, [plain(name) for name in known_tasks()]),
        (2 + 2, [name for suite in SUITES.values() for name in suite.averages]),
    ):
        assert len(set(names)) == len(names) == count


def averages(folder, to, *options):
    main(["table", str(folder), "--to", str(to), *options])
    lines = csv.DictReader((to / "table.csv").read_text().splitlines())
    return {line["model"]: float(line["score"]) for line in lines if line["column"] == "average"}


def test_another_suite_is_swept_averaged_and_submitted(toy, run, tmp_path, capfd, in_this_process):
    protocol = ["--epochs", "1", "--seeds", "1", "--learning_rates", "1e-3"]
    words = ["--tasks", "all", "--toy", str(toy), "--predict-test", "--to", str(tmp_path / "sweep")]
    main(["run", str(run), *words, *protocol])
    output = capfd.readouterr().out
    columns = ["model", "steps", "Vowel", "Vowel-l", "Count", "average"]
    assert columns in [line.split() for line in output.splitlines()]
    assert "Average over Vowel, Count, as Toy counts it." in " ".join(output.split())
    files = (tmp_path / "sweep").rglob("result.json")
    scores = {result.task: result.scores for result in (read_result(f.parent) for f in files)}
    assert scores["Vowel"].keys() == {"dev", "dev_long"}
    means = [
        statistics.fmean(statistics.fmean(metrics.values()) for metrics in scores[task].values())
        for task in TASKS
    ]
    found = averages(tmp_path / "sweep", tmp_path / "out")["small"]
    assert found == pytest.approx(100 * statistics.fmean(means), abs=1e-3)  # six digits

    main(["submission", str(tmp_path / "sweep"), "--suite", "toy", "--to", str(tmp_path / "sent")])
    assert "also needs" not in capfd.readouterr().out
    assert (tmp_path / "sent/Vowel.tsv").read_text().count(": ") == 2
    assert (tmp_path / "sent/Count.tsv").read_text().startswith("7: ")


def test_the_average_of_a_table_is_that_of_its_suite_or_the_one_asked_for(toy, tmp_path):
    vowel = {"dev": {"accuracy": 0.2, "f1": 0.4}, "dev_long": {"accuracy": 0.6, "f1": 0.8}}
    write_result(tmp_path / "results", "Vowel", vowel)
    write_result(tmp_path / "results", "Count", {"dev": {"spearman": 0.9, "pearson": 0.7}})
    write_result(tmp_path / "results", "mine", {"dev": {"accuracy": 0.1}})
    expected = {
        (): 100 * ((0.3 + 0.7) / 2 + 0.8) / 2,
        ("--average", "toy-sets"): 100 * (0.2 + 0.6 + 0.9) / 3,
    }
    for options, value in expected.items():
        found = averages(tmp_path / "results", tmp_path / "out", *options)
        assert found == {"m": pytest.approx(value)}
