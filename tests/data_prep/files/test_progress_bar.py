"""Progress in a log file is lines, in a terminal a bar."""

import errno
import io
import os
import re
import sys

import pytest

from data_prep.files import progress_bar as module
from data_prep.files.progress_bar import progress_bar
from tests.terminal import Terminal


@pytest.fixture
def clock(monkeypatch):
    """Return a clock of the module that stands still until it is set."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def lines(capsys):
    printed = capsys.readouterr().err
    assert "\r" not in printed
    stamped = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (.*)")
    return [stamped.fullmatch(line)[1] for line in printed.splitlines()]


def test_a_log_file_gets_a_line_every_half_minute_and_one_at_the_end(clock, capsys):
    with progress_bar("reading", 4000, "B") as bar:
        for second in range(1, 81):
            clock[0] = second
            bar.update(50)
    assert lines(capsys) == [
        "reading:  38% 1.50k/4.00k [00:30<00:50, 50.0B/s]",
        "reading:  75% 3.00k/4.00k [01:00<00:20, 50.0B/s]",
        "reading: 100% 4.00k/4.00k [01:20<00:00, 50.0B/s]",
    ]


def test_what_is_done_before_the_clock_starts_does_not_count_in_the_time_left(clock, capsys):
    clock[0] = 500
    with progress_bar("rows", 100, "row", done=40) as bar:
        clock[0] = 530
        bar.update(15)
    assert lines(capsys) == ["rows:  55% 55.0/100 [00:30<01:30, 2.00s/ rows]"]


def test_a_log_file_that_cannot_be_written_does_not_stop_the_work(monkeypatch):
    class Full(io.StringIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys, "stderr", Full())
    with progress_bar("rows", 5, "row") as bar:
        bar.update(5)
    assert bar.n == 5


def test_a_terminal_shows_a_bar(monkeypatch):
    terminal = Terminal(monkeypatch, 80)
    with progress_bar("rows", 5, "row") as bar:
        bar.update(5)
    assert "\rrows: 100%|" in terminal.read()
