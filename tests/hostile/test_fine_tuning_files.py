"""Task files and the results of a sweep, damaged or edited."""

import json

import pyarrow
import pytest
import torch
from pyarrow import parquet

from data_prep.tokenizer.describe import TokenizerError
from finetune.models.kept_model import Predictor, read_model
from finetune.report.entries import report_of
from finetune.report.page import notes
from finetune.report.score_table import score_table
from finetune.results.sweep_results import read_sweep_results
from finetune.tasks.custom import OwnTask, read_own
from finetune.tasks.task import TaskError
from pretrain.config.errors import ConfigError
from pretrain.reports.table import as_csv
from tests.finetune.models.kept_case import fine_tuned
from tests.finetune.report.score_case import write_result, write_sweep_record
from tests.hostile.mutations import mutated_bytes, mutated_json, mutated_lines
from tests.hostile.property import check_file


def check_examples(data):
    """Check that there are examples, and that each is what training takes it for."""
    assert data.train and all(data.development.values())
    assert all(example.label is not None for example in data.train)
    for examples in (data.train, *data.development.values(), *data.test.values()):
        for example in examples:
            assert len(example.texts) == len(data.task.texts)
            assert all(
                isinstance(text, str) and text.encode() is not None for text in example.texts
            )
            if data.task.kind == "classification" and example.label is not None:
                assert 0 <= example.label < len(data.task.labels)


ROWS = [{"text": f"words of {n}", "class": "ab"[n % 2], "extra": [n, None]} for n in range(8)]
FORMATS = {
    "tsv": "text\tclass\n" + "".join(f"{row['text']}\t{row['class']}\n" for row in ROWS),
    "csv": "text,class\n" + "".join(f'"{row["text"]}",{row["class"]}\n' for row in ROWS),
    "jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
}


@pytest.mark.parametrize(
    ("suffix", "regression"),
    [("tsv", True), ("csv", False), ("jsonl", True), ("parquet", False)],
)
def test_any_file_of_an_own_task_is_read_or_refused(tmp_path, suffix, regression):
    file = tmp_path / f"train.{suffix}"
    if suffix == "parquet":
        labels = [n % 2 / 2 if regression else "ab"[n % 2] for n in range(8)]
        table = {"text": [row["text"] for row in ROWS], "class": labels}
        parquet.write_table(pyarrow.table(table), file)
        content = file.read_bytes()
    else:
        content = text_rows(suffix, regression=regression).encode()
    file.write_bytes(content)
    # Without development rows some of the training rows are held out.
    own = OwnTask(
        train=file, dev=None if regression else file, label="class", regression=regression
    )
    mutate = mutated_lines if suffix == "jsonl" else mutated_bytes
    naming = [str(tmp_path)]
    check_file(file, mutate, lambda: read_own(own), TaskError, naming=naming, then=check_examples)


def test_any_record_of_a_fine_tuned_model_is_read_or_refused(tmp_path):
    folder = fine_tuned(tmp_path).folder
    errors = (ConfigError, TokenizerError)

    def predict(kept):
        assert len(Predictor(kept, torch.device("cpu")).outputs([("names",) * 2])) == 1

    check_file(
        folder / "config.json",
        mutated_json,
        lambda: read_model(folder),
        errors,
        naming=[str(folder)],
        then=predict,
    )


def text_rows(suffix, *, regression):
    text = FORMATS[suffix]
    if regression:
        text = text.replace('"a"', "0.5").replace('"b"', "2").replace("\ta\n", "\t0.5\n")
        text = text.replace("\tb\n", "\t2\n").replace(",a\n", ",0.5\n").replace(",b\n", ",2\n")
    return text


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A sweep with two tasks, two seeds, predictions and the scores of the majority class."""
    folder = tmp_path_factory.mktemp("run") / "finetune" / "tupe"
    for seed in (0, 1):
        for task, score in (("RTE", 0.6 + 0.01 * seed), ("STS-B", 0.8)):
            place = write_result(folder, task, score, seed=seed)
            prediction = 1 if task == "RTE" else 2.5
            rows = [{"identity": str(n), "prediction": prediction} for n in range(3)]
            (place / "predictions_test.json").write_text(json.dumps(rows))
    write_sweep_record(folder, ["RTE", "STS-B"], [1e-3], [0, 1])
    (folder / "majority.json").write_text(json.dumps({"RTE": {"dev": {"accuracy": 0.5}}}))
    return folder


def tables_of(folder):
    results = read_sweep_results([folder])
    for average in ("glue", "tupe"):
        table = score_table(results, average, "newest")
        report = report_of(table, notes(table, results))
        texts = [report.as_text(80), report.table.as_markdown()]
        texts += [report.table.as_latex(report.notes), as_csv(report.numbers)]
        assert all(text.encode() is not None for text in texts)


@pytest.mark.parametrize(
    "name",
    ["grid.json", "majority.json", "RTE/m/lr_0.001/seed_0/result.json"],
)
def test_any_record_of_a_sweep_is_in_the_table_or_refused(sweep, name):
    check_file(
        sweep / name, mutated_json, lambda: tables_of(sweep), ConfigError, naming=[str(sweep)]
    )
