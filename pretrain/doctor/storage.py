"""The disks that runs and shards go to: room, speed, and a clock that agrees."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pretrain.checkpoint.folders import kept
from pretrain.compare.tables import amount
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings
from pretrain.data.shards import shards_folder
from pretrain.doctor.finding import CheckResult, StatVfs, Surroundings, nearest_folder, size
from pretrain.model.cost import parameters_by_group

BYTES_PER_PARAMETER = 12  # of a checkpoint: the weight and Adam's two moments, fp32
PROBE_BYTES = 64 * 2**20
LITTLE_ROOM = 2**30
SLOW_BYTES_PER_SECOND = 20e6
LONG_SECONDS = 300.0
FEW_FILES = 10_000
LARGEST_CLOCK_DIFFERENCE_SECONDS = 5.0


def room_for_runs(surroundings: Surroundings, *, statvfs: StatVfs = os.statvfs) -> CheckResult:
    """Compare the free space with what the checkpoints of the run take."""
    folder = nearest_folder(surroundings.run_folder)
    disk = statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    described = f"{size(free)} free in {folder}"
    if disk.f_files and disk.f_favail < FEW_FILES:
        return CheckResult(
            "problem" if disk.f_favail < 100 else "warning",
            f"{described}, but room for {disk.f_favail} files only (df -i)",
            "remove small files there, or choose another disk with --run-folder",
        )
    elsewhere = "choose another disk with --run-folder, or --checkpoint.keep_last 2"
    if surroundings.settings is None:
        if free < LITTLE_ROOM:
            return CheckResult("warning", described, elsewhere)
        return CheckResult("ok", described)
    one = checkpoint_bytes(surroundings.settings)
    stay = _kept_checkpoints(surroundings.settings)
    # A new one is complete before an old one goes.
    described += f"; a checkpoint takes {size(one)}, {stay} of them and a new one "
    described += size((stay + 1) * one)
    if free < 2 * one:
        return CheckResult("problem", described, elsewhere)
    return (
        CheckResult("warning", described, elsewhere)
        if free < (stay + 1) * one
        else CheckResult("ok", described)
    )


def room_for_shards(surroundings: Surroundings, *, statvfs: StatVfs = os.statvfs) -> CheckResult:
    """Tell how much room there is where the shards are built."""
    folder = Path("data")
    if surroundings.settings is not None:
        try:
            folder = shards_folder(surroundings.settings)
        except ConfigError:
            return CheckResult("ok", "the recipe names neither text nor shards")
        if folder.is_dir():
            return CheckResult("ok", f"{folder} is there")
    there = nearest_folder(folder)
    disk = statvfs(there)
    free = disk.f_bavail * disk.f_frsize
    described = f"{size(free)} free in {there}; shards take 2 bytes a token"
    if free < LITTLE_ROOM:
        return CheckResult("warning", described, "choose another disk with --data.shards FOLDER")
    return CheckResult("ok", described)


def write_speed(
    surroundings: Surroundings, *, clock: Callable[[], float] = time.perf_counter
) -> CheckResult:
    """Write a file through to the disk, and tell how long a checkpoint would take."""
    folder = nearest_folder(surroundings.run_folder)
    block = os.urandom(2**20)  # nothing that a disk could compress
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
    if surroundings.settings is not None:
        seconds = checkpoint_bytes(surroundings.settings) / speed
        described += f"; a checkpoint takes {amount(seconds, 'training_seconds')}"
    if speed < SLOW_BYTES_PER_SECOND or seconds > LONG_SECONDS:
        fix = "choose a faster disk with --run-folder, or a higher --checkpoint.every_steps"
        return CheckResult("warning", described, fix)
    return CheckResult("ok", described)


def clocks_agree(
    surroundings: Surroundings, *, now: Callable[[], float] = time.time
) -> CheckResult:
    """Compare the clock of this machine with the one that dates files."""
    folder = nearest_folder(surroundings.run_folder)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        difference = os.stat(file.name).st_mtime - now()
    if abs(difference) > LARGEST_CLOCK_DIFFERENCE_SECONDS:
        return CheckResult(
            "warning",
            f"files in {folder} are dated {difference:+.0f} s from this machine's clock",
            "set both clocks by NTP (timedatectl set-ntp true); TensorBoard orders by them",
        )
    return CheckResult("ok", f"files are dated within {LARGEST_CLOCK_DIFFERENCE_SECONDS:g} s")


def checkpoint_bytes(settings: RunSettings) -> int:
    """Return about how much a checkpoint takes, of all ranks together."""
    return BYTES_PER_PARAMETER * parameters_by_group(settings.model, settings.objective)["total"]


def _kept_checkpoints(settings: RunSettings) -> int:
    checkpoint, last = settings.checkpoint, settings.steps
    written = {*range(checkpoint.every_steps, last + 1, checkpoint.every_steps), last}
    written |= {step for step in checkpoint.pinned if step <= last}
    return len(
        kept(
            written,
            keep_last=checkpoint.keep_last,
            keep_every=checkpoint.keep_every,
            pinned=checkpoint.pinned,
        )
    )
