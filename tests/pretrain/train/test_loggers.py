"""Metrics survive a full disk."""

import errno
import json
import os
import threading

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from data_prep.files.atomic import append_whole, remove_cut_line
from pretrain.train import loggers

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refuse(*_, **__):
    raise FULL


def test_lines_that_could_not_be_written_come_with_the_next(tmp_path, monkeypatch, capsys):
    file = tmp_path / "metrics.jsonl"
    lines = loggers.Lines(file)
    lines.append({"step": 1})
    with monkeypatch.context() as patched:
        patched.setattr(loggers, "append_whole", refuse)
        lines.append({"step": 2})
        lines.append({"step": 3})
        with pytest.raises(OSError, match="No space left"):
            lines.settle()
    assert capsys.readouterr().err.count("metrics.jsonl cannot be written (No space left") == 1
    lines.append({"step": 4})
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2, 3, 4]


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


def points(folder):
    found = EventAccumulator(str(folder))
    found.Reload()
    return [(point.step, point.value) for point in found.Scalars("train/loss")]


def test_points_that_could_not_be_written_come_with_the_next(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # restored afterwards
    curves = loggers.Curves(tmp_path, 0)
    curves.show("train", {"step": 1, "loss": 4.0})
    with monkeypatch.context() as patched:
        patched.setattr(SummaryWriter, "flush", refuse)
        curves.show("train", {"step": 2, "loss": 3.0})
        patched.setattr(SummaryWriter, "__init__", refuse)
        curves.show("train", {"step": 3, "loss": 2.0})
    curves.show("train", {"step": 4, "loss": 1.0})
    curves.close()
    assert points(tmp_path) == [(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0)]
    assert capsys.readouterr().err.count("cannot be written") == 1
