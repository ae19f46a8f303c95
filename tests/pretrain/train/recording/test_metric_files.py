"""Metrics survive a full disk, and the tables hold what the JSON lines hold."""

import csv
import errno
import json
import os

import pytest

from data_prep.files.atomic import append_whole, remove_cut_line
from pretrain.train.recording import metric_files
from pretrain.train.recording.metric_files import MetricFile

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refuse(*_, **__):
    raise FULL


def record(step, **more):
    return {
        "step": step,
        "loss": 1 / step,
        "keep_rates": [1.0, 0.5],
        "shares": {"data": 0.1},
        **more,
    }


def steps(folder, name="metrics"):
    """Return the steps in the JSON lines, and those in the table."""
    lines = (folder / f"{name}.jsonl").read_text().splitlines()
    rows = list(csv.DictReader((folder / f"{name}.csv").open(newline="")))
    return [json.loads(line)["step"] for line in lines], [int(row["step"]) for row in rows]


def test_lines_that_could_not_be_written_come_with_the_next(tmp_path, monkeypatch, capsys):
    file = MetricFile(tmp_path, "metrics")
    file.append(record(1))
    with monkeypatch.context() as patched:
        patched.setattr(metric_files, "append_whole", refuse)
        file.append(record(2))
        file.append(record(3))
        with pytest.raises(OSError, match="No space left"):
            file.settle()
    printed = capsys.readouterr().err
    for name in ("metrics.jsonl", "metrics.csv"):
        assert printed.count(f"{name} cannot be written (No space left") == 1
    file.append(record(4))
    assert steps(tmp_path) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_the_first_line_may_meet_a_full_disk_too(tmp_path, monkeypatch):
    file = MetricFile(tmp_path, "metrics")
    with monkeypatch.context() as patched:
        patched.setattr(metric_files, "append_whole", refuse)
        file.append(record(1))
    file.append(record(2))
    assert steps(tmp_path) == ([1, 2], [1, 2])


def test_a_table_has_a_column_for_each_number_and_one_header(tmp_path):
    file = MetricFile(tmp_path, "metrics")
    file.append(record(5, norm=None, payload_bytes_per_step={}))
    file.append(record(10, norm=0.25, payload_bytes_per_step={"all_reduce": 8.0, "broadcast": 2.0}))
    header, *rows = csv.reader((tmp_path / "metrics.csv").open(newline=""))
    assert header == [
        *("step", "loss", "keep_rates/layer_01", "keep_rates/layer_02", "shares/data", "norm"),
        "payload_bytes_per_step",
    ]
    assert rows == [
        ["5", "0.2", "1.0", "0.5", "0.1", "", "0"],
        ["10", "0.1", "1.0", "0.5", "0.1", "0.25", "10.0"],
    ]


@pytest.mark.parametrize("damage", ["a cut line", "a missing line", "no table", "another header"])
def test_a_resumed_table_holds_the_lines_up_to_the_step(damage, tmp_path):
    file, table = MetricFile(tmp_path, "metrics"), tmp_path / "metrics.csv"
    for step in (5, 10, 15):
        file.append(record(step))
    text = table.read_text()
    if damage == "a cut line":
        table.write_text(text[:-5])
    elif damage == "a missing line":
        table.write_text("".join(text.splitlines(keepends=True)[:2]))
    elif damage == "no table":  # written by a version that had none
        table.unlink()
    else:
        table.write_text("step,other\n" + text.partition("\n")[2])
    resumed = MetricFile(tmp_path, "metrics")
    resumed.discard_after(10)
    assert table.read_text() == "".join(text.splitlines(keepends=True)[:3])
    resumed.append(record(20))
    assert steps(tmp_path) == ([5, 10, 20], [5, 10, 20])


def test_lines_after_the_step_and_a_cut_one_are_removed_without_any_room(tmp_path, monkeypatch):
    file = MetricFile(tmp_path, "metrics")
    for step in (5, 10, 15):
        file.append(record(step))
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"st')
    monkeypatch.setattr(metric_files, "append_whole", refuse)
    file.discard_after(10)
    assert steps(tmp_path) == ([5, 10], [5, 10])


def test_lines_of_an_older_version_keep_their_columns(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "old": 1}\n')
    file = MetricFile(tmp_path, "metrics")
    file.discard_after(5)
    file.append({"step": 10, "new": 2})
    file.append({"step": 15, "new": 3})
    assert (tmp_path / "metrics.csv").read_text() == "step,old,new\n5,1,\n10,,2\n15,,3\n"


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"step": "5"}', '{"step": true}'])
def test_a_whole_line_that_is_damaged_is_named(line, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 5}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"line 2 of .*metrics.jsonl is damaged: .*; restore it"):
        MetricFile(tmp_path, "metrics").discard_after(10)


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
