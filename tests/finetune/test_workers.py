"""What is heard of a worker that dies, wherever it was."""

import os
from types import SimpleNamespace

import pytest

from finetune.results import read_result
from finetune.workers import SPAWN, Work, _hear
from tests.finetune.fine_tuning_case import protocol
from tests.finetune.test_grid import CELL


@pytest.mark.parametrize("last_words", [b"", b"\0\0", b"\0\0\0\x09part"])
def test_a_worker_that_dies_before_it_begins_or_within_a_message_fails_its_run(
    tmp_path, last_words
):
    connection, theirs = SPAWN.Pipe()
    os.write(theirs.fileno(), last_words)
    theirs.close()
    worker = SimpleNamespace(connection=connection, cell=CELL, how_it_died=lambda: "no memory")
    result = _hear(worker, Work(tmp_path, protocol(), False, 1))
    assert (result.status, result.reason) == ("failed", "no memory")
    assert read_result(tmp_path / CELL.folder) == result
