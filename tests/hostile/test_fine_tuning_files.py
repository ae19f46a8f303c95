"""Task files and kept models, damaged or edited."""

import json

import pyarrow
import pytest
import torch
from pyarrow import parquet

from data_prep.tokenizer.describe import TokenizerError
from finetune.models.kept_model import Predictor, read_model
from finetune.tasks.custom import OwnTask, read_own
from finetune.tasks.task import TaskError
from pretrain.config.errors import ConfigError
from tests.finetune.models.kept_case import fine_tuned
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
