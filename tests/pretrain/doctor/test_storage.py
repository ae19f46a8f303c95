import errno
import os
import tempfile

import pytest
from torch import nn

from pretrain.config.recipe import load_settings
from pretrain.doctor.storage import (
    PROBE_BYTES,
    space_for_runs,
    space_for_shards,
    write_speed,
)
from pretrain.engine.footprint import checkpoint_bytes, size
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.train.summary import disk_rows
from tests.pretrain.doctor.conftest import GIB, disk


def clock(*seconds):
    readings = iter(seconds)
    return lambda: next(readings)


def settings_of(*words):
    return load_settings("tiny_cpu", ("--model.width", "512", "--model.num_heads", "8", *words))


def test_a_checkpoint_is_a_weight_and_two_moments_for_every_parameter():
    settings = load_settings("tiny_cpu")
    model: nn.Module = MaskedLanguageModel(settings.model)
    assert checkpoint_bytes(settings) == 12 * sum(p.numel() for p in model.parameters())


def test_room_is_compared_with_the_checkpoints_that_are_kept_and_a_new_one(machine):
    keeping_two = settings_of("--steps", "100", "--checkpoint.keep_last", "2")
    keeping_ten = settings_of("--steps", "100")
    # 33, 50, 77, 90 and 100
    keeping_five = settings_of(
        *("--steps", "100", "--checkpoint.keep_last", "2", "--checkpoint.keep_every", "50"),
        *("--checkpoint.pinned", "33", "--checkpoint.pinned", "77"),
    )
    one = checkpoint_bytes(keeping_two)
    for settings, room, mark in (
        (keeping_two, 3.1, "ok"),
        (keeping_two, 2.9, "warning"),
        (keeping_two, 1.9, "problem"),
        (keeping_five, 5.9, "warning"),
        (keeping_five, 6.1, "ok"),
        (keeping_ten, 10.9, "warning"),
        (keeping_ten, 11.1, "ok"),
    ):
        found = space_for_runs(machine.context(settings=settings), statvfs=disk(int(room * one)))
        assert found.status == mark, (room, found)
        assert mark == "ok" or "--run-folder" in found.fix


def test_of_a_run_of_hours_the_size_of_one_checkpoint_is_known_and_not_their_number(machine):
    settings = settings_of("--hours", "2", "--steps", "100")
    one = checkpoint_bytes(settings)
    for room, mark in ((1.9, "problem"), (2.1, "ok")):
        found = space_for_runs(machine.context(settings=settings), statvfs=disk(int(room * one)))
        assert found.status == mark and found.message.endswith(f"a checkpoint takes {size(one)}")
    (row, _) = disk_rows(settings, None)
    assert row == ("checkpoints", f"{size(one)} each")


def test_without_a_recipe_little_room_is_a_warning(machine):
    assert space_for_runs(machine.context(), statvfs=disk(5 * GIB)).status == "ok"
    assert space_for_runs(machine.context(), statvfs=disk(GIB // 2)).status == "warning"


@pytest.mark.parametrize(("left", "mark"), [(50, "problem"), (5000, "warning"), (50_000, "ok")])
def test_a_disk_that_has_room_but_no_inodes_is_reported(machine, left, mark):
    found = space_for_runs(machine.context(), statvfs=disk(5 * GIB, free_files=left))
    assert found.status == mark and ("df -i" in found.message) == (mark != "ok")


def test_a_file_system_that_counts_no_inodes_is_not_out_of_them(machine):
    found = space_for_runs(machine.context(), statvfs=disk(5 * GIB, free_files=0, num_files=0))
    assert found.status == "ok"


def test_space_for_shards_is_checked_only_where_they_do_not_exist(machine, shards):
    there = load_settings("tiny_cpu", ("--data.shards", str(shards)))
    found = space_for_shards(machine.context(settings=there), statvfs=disk(1))
    assert found.status == "ok" and found.message == f"{shards} exists"
    away = load_settings("tiny_cpu", ("--data.shards", str(machine.root / "away")))
    assert space_for_shards(machine.context(settings=away), statvfs=disk(1)).status == "warning"
    assert space_for_shards(machine.context(), statvfs=disk(2 * GIB)).status == "ok"


def test_the_speed_is_bytes_over_seconds_and_nothing_is_left_behind(machine):
    found = write_speed(machine.context(), clock=clock(10.0, 10.5))
    assert found.status == "ok" and found.message.startswith("128.0 MiB a second")
    assert list((machine.root / "runs").iterdir()) == []


def test_a_slow_disk_is_a_warning_with_the_time_of_a_checkpoint(machine):
    settings = settings_of()
    seconds = checkpoint_bytes(settings) / PROBE_BYTES * 16
    found = write_speed(machine.context(settings=settings), clock=clock(0.0, 16.0))
    assert found.status == "warning" and f"a checkpoint takes {seconds:.1f} s" in found.message


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_refuses_is_a_problem_in_its_own_words(machine, monkeypatch, code):
    def refuse(**_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    found = write_speed(machine.context())
    assert found.status == "problem" and os.strerror(code) in found.message


def test_a_run_folder_that_is_not_there_yet_is_looked_for_above(machine):
    context = machine.context(run_folder=machine.root / "runs" / "new" / "one")
    found = space_for_runs(context, statvfs=disk(5 * GIB))
    assert found.message.endswith(f"in {machine.root / 'runs'}")
