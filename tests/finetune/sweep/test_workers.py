"""What a worker keeps between trials: no worker uses changed examples."""

from dataclasses import replace

import pytest

from finetune.sweep.references import TaskRef
from finetune.tasks.custom import OwnTask
from finetune.tasks.task import TaskError


def test_examples_that_changed_after_the_start_are_refused(tmp_path):
    train = tmp_path / "train.tsv"
    train.write_text("text\tlabel\na\tyes\nb\tno\n")
    task = TaskRef(OwnTask(train=train, dev=train))
    data = task.load()
    task = replace(task, digests=(data.labelled_digest, data.test_digests))
    assert task.load() == data
    train.write_text("text\tlabel\na\tyes\nb\tno\nc\tno\n")
    with pytest.raises(TaskError, match="examples of own have changed since this sweep"):
        task.load()
