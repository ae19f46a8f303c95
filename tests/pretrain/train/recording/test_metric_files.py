"""Metrics survive a full disk."""

import json
import os

import pytest

from data_prep.files.atomic import append_whole, remove_cut_line
from pretrain.train.recording import metric_files
from pretrain.train.recording.metric_files import MetricFile
from tests.pretrain.run_files import full_disk


def record(step):
    return {"step": step, "loss": 1 / step}


def steps(folder):
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").open()]


def test_lines_that_could_not_be_written_come_with_the_next(tmp_path, monkeypatch, capsys):
    file = MetricFile(tmp_path / "metrics.jsonl")
    file.append(record(1))
    with monkeypatch.context() as patched:
        patched.setattr(metric_files, "append_whole", full_disk)
        file.append(record(2))
        file.append(record(3))
        with pytest.raises(OSError, match="No space left"):
            file.settle()
    printed = capsys.readouterr().err
    assert printed.count("metrics.jsonl cannot be written (No space left") == 1
    file.append(record(4))
    assert steps(tmp_path) == [1, 2, 3, 4]


def test_lines_after_the_step_and_a_cut_one_are_removed_without_any_room(tmp_path, monkeypatch):
    file = MetricFile(tmp_path / "metrics.jsonl")
    for step in (5, 10, 15):
        file.append(record(step))
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"st')
    monkeypatch.setattr(metric_files, "append_whole", full_disk)
    file.discard_after(10)
    assert steps(tmp_path) == [5, 10]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"step": "x"}'])
def test_a_whole_line_that_is_damaged_is_named(line, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 5}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"line 2 of .*metrics.jsonl is damaged: .*; restore it"):
        MetricFile(tmp_path / "metrics.jsonl").discard_after(10)


def test_what_a_filling_disk_takes_of_a_line_is_taken_back(tmp_path):
    """A limit on the size of files stands for the disk; it holds in a child of this process."""
    import resource
    import signal

    file = tmp_path / "metrics.jsonl"
    file.write_text("a whole line\n")
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
        try:
            append_whole(file, "a line too long\n")
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert file.read_text() == "a whole line\n"


def test_a_line_that_a_kill_cut_short_is_removed(tmp_path):
    file = tmp_path / "launches.jsonl"
    remove_cut_line(file)
    file.write_text('{"a": 1}\n{"b"')
    remove_cut_line(file)
    assert file.read_text() == '{"a": 1}\n'
    remove_cut_line(file)
    assert file.read_text() == '{"a": 1}\n'
