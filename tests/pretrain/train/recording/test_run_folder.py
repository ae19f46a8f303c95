"""The run folder continues a run where it stopped, and refuses where it cannot."""

import os
import signal
import time

import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.train.recording import run_folder
from pretrain.train.recording.progress import Counters
from tests.pretrain.run_files import full_disk


def test_a_launch_that_cannot_be_noted_is_one_line_about_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "append_whole", full_disk)
    message = r"cannot be written \(No space left on device\); free space"
    with pytest.raises(ConfigError, match=message):
        run_folder.RunRecord(tmp_path).begin(Counters(), {}, load_settings("tiny_cpu"))


def test_a_start_does_not_take_the_folder_of_one_that_ended_since_it_looked(tmp_path):
    for name in ("run.json", "result.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigError, match="already holds a run, which is finished"):
        run_folder.RunRecord(tmp_path).create(load_settings("tiny_cpu"), {}, None)
    assert (tmp_path / "result.json").exists()


def test_step_0_has_one_line_where_a_run_that_was_killed_evaluates_it_again(tmp_path):
    for _ in range(2):
        record = run_folder.RunRecord(tmp_path)
        record.begin(Counters(), {}, load_settings("tiny_cpu", ["--loggers", "none"]))
        record.log_evaluation({"step": 0, "loss": 6.0})
    assert len((tmp_path / "evals.jsonl").read_text().splitlines()) == 1


def test_a_second_launch_is_refused_while_the_first_one_lives(tmp_path):
    """A kill of the first frees the folder at once, though processes that it forked live on."""
    ready, tell = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            record = run_folder.RunRecord(tmp_path)
            record.hold()
            worker = os.fork()
            if worker:
                os.write(tell, str(worker).encode())
            time.sleep(60)
        finally:
            os._exit(0)
    os.close(tell)
    worker = int(os.read(ready, 20))
    try:
        with pytest.raises(ConfigError, match="another process is training in .*; stop it, or"):
            run_folder.RunRecord(tmp_path).hold()
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        run_folder.RunRecord(tmp_path).hold()  # at once
    finally:
        os.kill(worker, signal.SIGKILL)
