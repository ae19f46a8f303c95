"""The death of a worker is reported, and no worker uses changed examples."""

import os
from types import SimpleNamespace

import pytest

from finetune.results.result import read_result
from finetune.sweep.references import TaskRef
from finetune.sweep.trial import TrialOutput
from finetune.sweep.workers import SPAWN, Cache, SweepContext, _next_message
from finetune.tasks.custom import OwnTask
from finetune.tasks.task import Example, TaskError
from tests.finetune.fine_tuning_case import protocol
from tests.finetune.models.kept_case import task_data
from tests.finetune.sweep.test_sweep import TRIAL
from tests.pretrain.convert.small_tokenizers import text_encoder_of, trained


def task_and_cache(train, content):
    """Write examples, and return their task and the cache of a worker that was started on them."""
    train.write_text(content)
    task = TaskRef(OwnTask(train=train, dev=train))
    data = task.load()
    return task, Cache(protocol(), {"own": (data.labelled_digest, data.test_digests)})


def test_examples_that_changed_after_the_start_are_refused(tmp_path):
    train = tmp_path / "train.tsv"
    task, cache = task_and_cache(train, "text\tlabel\na\tyes\nb\tno\n")
    assert cache._read(task) == task.load()
    train.write_text("text\tlabel\na\tyes\nb\tno\nc\tno\n")
    with pytest.raises(TaskError, match="examples of own have changed since this sweep"):
        cache._read(task)


def test_a_test_split_that_is_read_later_changes_no_examples_and_another_one_does(tmp_path):
    """As of a configuration of the Hub that could not be read at the start."""
    rows = [Example(("text",), None, str(number)) for number in range(3)]
    data = task_data()._replace(test={"test": rows[:2]})
    cache = Cache(protocol(), {"letters": (data.labelled_digest, data.test_digests)})
    more = data._replace(test={"test": rows[:2], "test_ax": rows})
    assert cache._read(SimpleNamespace(name="letters", load=lambda: more)) == more
    for test in ({"test": rows}, {}):
        with pytest.raises(TaskError, match="examples of letters have changed since this sweep"):
            other = data._replace(test=test)
            cache._read(SimpleNamespace(name="letters", load=lambda other=other: other))


def test_models_of_one_tokenizer_with_and_without_moses_have_rows_of_their_own(tmp_path):
    content = "text\tlabel\nnames, words\tyes\na (list)\tno\n"
    task, cache = task_and_cache(tmp_path / "train.tsv", content)
    tokenizer = trained("wordpiece", moses="en")

    def rows(moses):
        text_encoder = text_encoder_of(tokenizer, tmp_path, moses=moses)
        model = SimpleNamespace(text_encoder=text_encoder, sequence_length=16)
        trial = SimpleNamespace(model=SimpleNamespace(load=lambda: model), task=task)
        found = cache.load(trial)[1]
        assert cache.load(trial)[1] is found
        expected = text_encoder.pair_ids("names, words", max_length=16)
        assert found.train.rows._ids[: found.train.rows.lengths[0]].tolist() == expected
        return expected

    assert rows(None) != rows("en")


@pytest.mark.parametrize("last_words", [b"", b"\0\0\0\x09part"])
def test_a_worker_that_dies_before_it_begins_or_within_a_message_fails_its_run(
    tmp_path, last_words
):
    connection, theirs = SPAWN.Pipe()
    os.write(theirs.fileno(), last_words)
    theirs.close()
    worker = SimpleNamespace(connection=connection, trial=TRIAL, cause_of_death=lambda: "no memory")
    result = _next_message(
        worker, SweepContext(tmp_path, protocol(), TrialOutput(False, False), 1, {})
    )
    assert (result.status, result.reason) == ("failed", "no memory")
    assert read_result(tmp_path / TRIAL.folder) == result
