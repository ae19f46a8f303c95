"""Saving does not stop training, and a full disk does not end it."""

import errno
import os
from pathlib import Path
from threading import Event

import pytest
import torch
from safetensors import SafetensorError

from pretrain.checkpoint import format as checkpoint_format
from pretrain.checkpoint import writer
from pretrain.checkpoint.folders import checkpoint_folder, checkpoints_of
from pretrain.checkpoint.format import Checkpoint, EngineCounters, Piece, Snapshot, load_weights
from pretrain.config.settings import CheckpointSettings
from pretrain.distributed.ranks import Ranks
from tests.pretrain.run_files import full_disk

ONE = Ranks(rank=0, world_size=1, device="cpu")


def snapshot(value=1.0):
    tensors = {f"{kind}/bias": torch.full((3,), value) for kind in ("weight", "exp_avg")}
    return Snapshot(
        {**tensors, "exp_avg_sq/bias": torch.zeros(3)},
        {"bias": Piece(0, 3)},
        {"bias": [3]},
        ("exp_avg", "exp_avg_sq"),
        EngineCounters(adam_steps=1),
    )


def saver_of(run, **settings):
    return writer.Saver(run, CheckpointSettings(**settings), ONE)


def save(saver, step):
    saver.save(step, snapshot(float(step)), {})
    saver.wait()


def steps(run):
    return [int(folder.name[5:]) for folder in checkpoints_of(run)]


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    may_write, write_part = Event(), writer.write_part

    def slowly(*arguments):
        assert may_write.wait(60)
        return write_part(*arguments)

    monkeypatch.setattr(writer, "write_part", slowly)
    saver = saver_of(tmp_path)
    saver.save(5, snapshot(), {"step": 5})
    assert steps(tmp_path) == [] and saver.newest is None  # and we are here
    may_write.set()
    saver.wait()
    assert steps(tmp_path) == [5] and saver.newest == 5
    content = Checkpoint(checkpoint_folder(tmp_path, 5)).content
    assert (content.step, content.world_size, content.progress) == (5, 1, {"step": 5})


def test_a_checkpoint_exists_when_all_that_it_relies_on_is_on_the_disk(tmp_path, monkeypatch):
    """A loss of power leaves nothing empty beside it: the order of syncing and renaming."""
    records = ("run.json", "tokenizer.json", "launches.jsonl", "metrics.jsonl", "evals.jsonl")
    for name in records:
        (tmp_path / name).write_text("{}\n")
    done, fsync, rename = [], os.fsync, Path.replace

    def synced(descriptor):
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def renamed(path, target):
        done.append(target)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    saver = saver_of(tmp_path)
    save(saver, 5)
    folder = checkpoint_folder(tmp_path, 5)
    before, after = done[: done.index(folder)], done[done.index(folder) + 1 :]
    partial = folder.with_suffix(".partial")
    written = [partial, *(partial / file.name for file in folder.iterdir())]
    assert {*written, tmp_path, *(tmp_path / name for name in records)} <= {*before}
    assert after == [folder.parent]


def test_a_save_waits_for_the_one_before(tmp_path):
    saver = saver_of(tmp_path, keep_last=1)
    for step in (5, 10, 15):
        saver.save(step, snapshot(float(step)), {})
        assert saver.newest in (step - 5 or None, step)
    saver.wait()
    assert steps(tmp_path) == [15]
    assert load_weights(checkpoint_folder(tmp_path, 15))["bias"].tolist() == [15.0] * 3


@pytest.mark.parametrize("place", ["write_part", "complete", "_make_empty"])
def test_a_full_disk_leaves_the_older_checkpoint_and_one_line(place, tmp_path, monkeypatch, capsys):
    saver = saver_of(tmp_path, keep_last=1)
    save(saver, 5)
    with monkeypatch.context() as patched:
        patched.setattr(writer, place, full_disk)
        save(saver, 10)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line == (
        "warning: the checkpoint of step 10 could not be written to "
        f"{tmp_path}/checkpoints (no space left on the disk); the newest good one is of step 5; "
        "free space for the next"
    )
    assert [folder.name for folder in (tmp_path / "checkpoints").iterdir()] == ["step_00000005"]
    assert saver.newest == 5
    Checkpoint(checkpoint_folder(tmp_path, 5)).verify()
    save(saver, 15)
    assert steps(tmp_path) == [15]


def test_a_checkpoint_that_cannot_be_removed_ends_nothing(tmp_path, monkeypatch, capsys):
    saver = saver_of(tmp_path, keep_last=1)
    saver.save(5, snapshot(), {})
    with monkeypatch.context() as patched:
        patched.setattr(writer, "remove", full_disk)
        save(saver, 10)
    assert steps(tmp_path) == [5, 10] and saver.newest == 10
    assert capsys.readouterr().err.strip() == (
        "warning: an old checkpoint cannot be removed (no space left on the disk)"
    )
    remains = checkpoint_folder(tmp_path, 5).with_suffix(".removed")
    remains.mkdir()
    (remains / "busy").touch()
    save(saver, 15)
    assert steps(tmp_path) == [15] and not remains.exists()


def test_what_safetensors_says_of_a_full_disk_is_the_error_of_the_system(tmp_path, monkeypatch):
    def refuse(*_):
        raise SafetensorError("Error while serializing: I/O error: No space left (os error 28)")

    monkeypatch.setattr(checkpoint_format, "save_file", refuse)
    with pytest.raises(OSError) as refused:
        checkpoint_format.write_part(tmp_path, 0, {}, {})
    assert refused.value.errno == errno.ENOSPC


def test_a_launch_removes_what_one_before_left_partly_written_or_keeps_no_more(tmp_path):
    saver = saver_of(tmp_path)
    for step in (5, 10):
        save(saver, step)
    checkpoint_folder(tmp_path, 15).with_suffix(".partial").mkdir()
    saver_of(tmp_path, keep_last=1)
    assert [folder.name for folder in (tmp_path / "checkpoints").iterdir()] == ["step_00000010"]


def test_a_checkpoint_whose_lines_of_metrics_are_not_written_does_not_count(tmp_path, capsys):
    saver = saver_of(tmp_path)
    saver.save(5, snapshot(), {}, lacks_lines=True)
    saver.wait()
    assert steps(tmp_path) == [] and saver.newest is None
    assert "the checkpoint of step 5 could not be written" in capsys.readouterr().err


def test_a_defect_in_the_background_is_raised_where_it_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "write_part", lambda *_: 1 / 0)
    saver = saver_of(tmp_path)
    saver.save(5, snapshot(), {})
    with pytest.raises(ZeroDivisionError):
        saver.wait()
