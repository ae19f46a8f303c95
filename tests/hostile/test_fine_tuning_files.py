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
            assert all(isinstance(one, str) and one.encode() is not None for one in example.texts)
            if data.task.kind == "classification" and example.label is not None:
                assert 0 <= example.label < len(data.task.labels)


@pytest.mark.parametrize(
    ("suffix", "regression"), [("tsv", True), ("csv", False), ("jsonl", True), ("parquet", False)]
)
def test_any_file_of_an_own_task_is_read_or_refused(tmp_path, suffix, regression):
    file = tmp_path / f"train.{suffix}"
    rows = [(f"words of {n}", n % 2 / 2 if regression else "ab"[n % 2]) for n in range(8)]
    texts, labels = zip(*rows, strict=True)
    if suffix == "parquet":
        parquet.write_table(pyarrow.table({"text": texts, "class": labels}), file)
    elif suffix == "jsonl":
        named = [{"text": text, "class": label, "extra": [text, None]} for text, label in rows]
        file.write_text("".join(json.dumps(row) + "\n" for row in named))
    else:
        mark = {"tsv": "\t", "csv": ","}[suffix]
        lines = [f"{text}{mark}{label}\n" for text, label in [("text", "class"), *rows]]
        file.write_text("".join(lines))
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
