"""Tasks of a suite: their names, and one sweep from the original files to the table."""

import pytest

from finetune.results.result import read_result
from finetune.tasks.catalog import SUITES, known_tasks
from finetune.tasks.task import plain
from tests.finetune.small_glue import write_small_glue
from tupelo.__main__ import main


def test_names_of_tasks_and_averages_are_different():
    for names in (
        [plain(name) for name in known_tasks()],
        [name for suite in SUITES.values() for name in suite.averages],
    ):
        assert len(set(names)) == len(names) > 1


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
