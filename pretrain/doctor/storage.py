"""The disks of runs and shards: free space and speed."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pretrain.config.errors import ConfigError
from pretrain.data.shards import shards_folder
from pretrain.doctor.check import (
    CheckContext,
    CheckResult,
    StatVfs,
    compare_free,
    nearest_folder,
)
from pretrain.engine.footprint import checkpoint_bytes, num_kept_checkpoints, size
from pretrain.reports.words import amount

PROBE_BYTES = 64 * 2**20
LITTLE_SPACE = 2**30
SLOW_BYTES_PER_SECOND = 20e6
LONG_SECONDS = 300.0
FEW_FILES = 10_000


def space_for_runs(context: CheckContext, *, statvfs: StatVfs = os.statvfs) -> CheckResult:
    """Compare the free space with what the checkpoints of the run take."""
    folder = nearest_folder(context.run_folder)
    disk = statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    described = f"{size(free)} free in {folder}"
    if disk.f_files and disk.f_favail < FEW_FILES:
        return CheckResult(
            "problem" if disk.f_favail < 100 else "warning",
            f"{described}, but only {disk.f_favail} inodes (df -i)",
            "remove small files there, or choose another disk with --run-folder",
        )
    elsewhere = "choose another disk with --run-folder, or --checkpoint.keep_last 2"
    if context.settings is None:
        return compare_free(free, 0, LITTLE_SPACE, described, elsewhere)
    one = checkpoint_bytes(context.settings)
    kept_count = num_kept_checkpoints(context.settings)
    # A new one is complete before an old one is removed.
    most = ((kept_count or 1) + 1) * one
    described += f"; a checkpoint takes {size(one)}"
    if kept_count is not None:
        described += f", the {kept_count} kept and a new one {size(most)}"
    return compare_free(free, 2 * one, most, described, elsewhere)


def space_for_shards(context: CheckContext, *, statvfs: StatVfs = os.statvfs) -> CheckResult:
    """Report the free space where the shards are built."""
    folder = Path("data")
    if context.settings is not None:
        try:
            folder = shards_folder(context.settings)
        except ConfigError:
            return CheckResult("ok", "the recipe names neither text nor shards")
        if folder.is_dir():
            return CheckResult("ok", f"{folder} exists")
    there = nearest_folder(folder)
    disk = statvfs(there)
    free = disk.f_bavail * disk.f_frsize
    described = f"{size(free)} free in {there}; shards take 2 bytes a token, 4 with over 65,536 ids"
    fix = "choose another disk with --data.shards FOLDER"
    return compare_free(free, 0, LITTLE_SPACE, described, fix)


def write_speed(
    context: CheckContext, *, clock: Callable[[], float] = time.perf_counter
) -> CheckResult:
    """Write a file through to the disk, and report how long a checkpoint would take."""
    folder = nearest_folder(context.run_folder)
    block = os.urandom(2**20)  # a disk cannot compress it
    started = clock()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(PROBE_BYTES // len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return CheckResult(
            "problem",
            f"{folder} cannot be written: {error.strerror}",
            "make it writable, free some space or quota (quota -s), or choose another folder with "
            "--run-folder",
        )
    speed = PROBE_BYTES / max(clock() - started, 1e-9)
    described = f"{size(speed)} a second in {folder}"
    seconds = 0.0
    if context.settings is not None:
        seconds = checkpoint_bytes(context.settings) / speed
        described += f"; a checkpoint takes {amount(seconds, 'training_seconds')}"
    if speed < SLOW_BYTES_PER_SECOND or seconds > LONG_SECONDS:
        fix = "choose a faster disk with --run-folder, or a higher --checkpoint.every_steps"
        return CheckResult("warning", described, fix)
    return CheckResult("ok", described)
