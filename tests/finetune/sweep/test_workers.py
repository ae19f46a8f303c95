"""What a worker keeps between trials: no worker uses changed examples."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from finetune.sweep import trial as trial_module
from finetune.sweep.references import TaskRef
from finetune.sweep.trial import Context, MeasuredStep, Trial, TrialRunner
from finetune.tasks.custom import OwnTask
from finetune.tasks.task import TaskError
from tests.finetune.fine_tuning_case import protocol, tiny_pretrained
from tests.finetune.models.kept_case import task_data
from tests.finetune.sweep.test_sweep import NEW
from tests.pretrain.convert.small_tokenizers import text_encoder_of, trained


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


def test_a_step_is_measured_and_changes_no_number_of_the_trial(tmp_path, monkeypatch):
    encoder = text_encoder_of(trained("wordpiece"), tmp_path)
    pretrained = tiny_pretrained(vocabulary_size=400)._replace(text_encoder=encoder)
    monkeypatch.setattr(trial_module, "load_model", lambda _: pretrained)
    trial, sent, scores = Trial(NEW, SimpleNamespace(name="a", load=task_data), 1e-3, 0), [], []
    for measures in (False, True):
        context = Context(tmp_path / str(measures), protocol(), False, False, 1)
        worker = TrialRunner(context, "cpu")
        if measures:
            worker(MeasuredStep(trial), sent.append)
        scores.append(worker.run(trial, [].append).scores)
    assert scores[0] == scores[1] != {} and 0 < sent[0] < 60
