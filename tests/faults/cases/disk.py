"""A disk that is full when a checkpoint is written, and has space again later; or /dev/shm.

Both are a tmpfs in a mount namespace of this case.
"""

import ctypes
import os
import re
import shutil
from pathlib import Path

from tests.faults.case import Bench, Case
from tests.faults.material import SAVE_EVERY, STEPS, Variant
from tests.faults.outcome import NotSurvivedError, SkippedError
from tests.faults.run import Run
from tests.faults.sample_log import wait_for_saves

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000  # linux/sched.h
MS_REC, MS_PRIVATE = 0x4000, 1 << 18  # linux/mount.h
# Full for the saves after steps 8 and 12; the lines of metrics still find room.
FULL_FROM, FULL_UNTIL = SAVE_EVERY + 2, 3 * SAVE_EVERY + 2
ROOM_BYTES = 128 * 1024
SHARED_MEMORY = Path("/dev/shm")
ABOUT_THE_DISK = re.compile("no space left|file too large", re.IGNORECASE)


def cases(stages: tuple[int, ...]) -> list[Case]:
    """Return a full disk at each of these ZeRO stages, and a full /dev/shm."""
    return [*map(_full_disk, stages), Case("disk", "/dev/shm", 1, (Variant(1),), _fill_shared)]


def _full_disk(stage: int) -> Case:
    variant = Variant(stage)
    name = f"a tmpfs, {variant.name}"
    return Case("disk", name, 1, (variant,), lambda bench: _fill_disk(bench, variant))


def _fill_disk(bench: Bench, variant: Variant) -> None:
    disk = bench.place / "disk"
    disk.mkdir()
    _mount(disk, size_bytes=64 * 1024 * 1024)
    before = bench.place / "before"
    run = Run(bench.material, bench.place / "launches", variant, folder=disk / "run")

    def before_step(step: int) -> None:
        if step in (FULL_FROM, FULL_UNTIL):
            wait_for_saves()
        if step == FULL_FROM:
            _fill(disk / "filler", disk)
        elif step == FULL_UNTIL:
            shutil.copytree(run.folder, before)
            (disk / "filler").unlink()

    with bench.faults("a full disk"):
        launch = run.start(before_step=before_step)
        launch.end_well()
        bench.judge(run)
        _check(run, launch.output)
        # What the full disk had left must be good on its own.
        left = Run(bench.material, bench.place / "left", variant, folder=before)
        left.finish()
        if left.last_first_step() != SAVE_EVERY:
            raise NotSurvivedError(f"the old checkpoint was resumed at {left.last_first_step()}")
        _judge_without_samples(left)


def _fill_shared(bench: Bench) -> None:
    """Fill /dev/shm while loader workers send batches, as any other program may."""
    _mount(SHARED_MEMORY, size_bytes=1024 * 1024)
    words = ("--data.loader_workers", "2")
    run = Run(bench.material, bench.place, Variant(1), words=words)

    def before_step(step: int) -> None:
        if step == FULL_FROM:
            _fill(SHARED_MEMORY / "filler", SHARED_MEMORY, room=0)
        elif step == FULL_UNTIL:
            (SHARED_MEMORY / "filler").unlink()

    with bench.faults("a full /dev/shm"):
        run.start(before_step=before_step).end_well()
        bench.judge(run)


def _check(run: Run, output: str) -> None:
    """Check what the user sees: a line for each save that failed, and the later checkpoints.

    While a save fills the disk, metrics may find no room either: one more line for each file.
    """
    lines = [line for line in re.split(r"[\r\n]+", output) if ABOUT_THE_DISK.search(line)]
    saves = [line for line in lines if "the checkpoint of step" in line]
    others = [line for line in lines if line not in saves]
    failed = (FULL_UNTIL - FULL_FROM) // SAVE_EVERY
    if "Traceback" in output or not 1 <= len(saves) <= failed or len(others) > len(set(others)):
        raise NotSurvivedError(f"{len(lines)} lines for {failed} failed saves: {output[-1500:]}")
    steps = [int(folder.name[-8:]) for folder in run.checkpoints()]
    if steps != [STEPS - SAVE_EVERY, STEPS] or run.is_saving():
        raise NotSurvivedError(f"checkpoints {steps} after there was room again")


def _judge_without_samples(run: Run) -> None:
    problems = [text for text in run.problems() if "samples" not in text]
    if problems:
        raise NotSurvivedError("; ".join(problems[:4]))


def _fill(filler: Path, disk: Path, *, room: int = ROOM_BYTES) -> None:
    status = os.statvfs(disk)
    size = status.f_bavail * status.f_frsize - room
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def _mount(folder: Path, *, size_bytes: int) -> None:
    """Mount a tmpfs that vanishes with this process."""
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if library.unshare(CLONE_NEWNS):
        if library.unshare(CLONE_NEWUSER | CLONE_NEWNS):
            raise SkippedError("neither root nor user namespaces: no tmpfs can be mounted")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    options = f"size={size_bytes}".encode()
    failed = library.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    failed = failed or library.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options)
    if failed:
        raise SkippedError(f"no tmpfs can be mounted: {os.strerror(ctypes.get_errno())}")
