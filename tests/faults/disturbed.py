"""`python -m pretrain`, with a log of the samples that it consumes, and a fault.

    python -m tests.faults.disturbed LOG FAULT COMMAND ...

FAULT is the JSON list of the name of a fault and its arguments.
"""

import contextlib
import ctypes
import itertools
import json
import os
import runpy
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from pretrain.train import trainer
from tests.faults.sample_log import log_samples
from tests.faults.watched_calls import copy_if_changed, watch

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000  # linux/sched.h
MS_REC, MS_PRIVATE = 0x4000, 1 << 18  # linux/mount.h
CANNOT_MOUNT = 77  # a status
ROOM_BYTES = 128 * 1024


@contextlib.contextmanager
def none(rank):
    """Disturb nothing."""
    yield lambda step: None


@contextlib.contextmanager
def slow(rank, first, end, seconds):
    """Take longer before the steps from `first` on, and let a hang be seen soon."""
    trainer.HANG_MINUTES = 0.1
    yield lambda step: time.sleep(seconds * (first <= step < end))


@contextlib.contextmanager
def killed(rank, before):
    """Die before a step, when all checkpoints are written."""

    def before_step(step):
        if step == before:
            wait_for_saves()
            os.kill(os.getpid(), signal.SIGKILL)

    yield before_step


@contextlib.contextmanager
def killed_after(rank, steps, seconds):
    """Die so long after this launch began so many steps; at 0, after its start."""
    kill = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    begun = itertools.count(1)

    def before_step(step):
        if next(begun) == steps:
            kill.start()

    if not steps:
        kill.start()
    yield before_step  # where the run ends first, the process waits for the timer


@contextlib.contextmanager
def copied(rank, folder, copies, steps):
    """Copy the run folder before each change that some steps of the first rank make to it."""
    folder, seen, now = Path(folder), set(), [-1]

    def event():
        if now[0] in steps:
            copy_if_changed(folder, Path(copies, f"{now[0]}-{len(seen):04d}"), seen)

    def before_step(step):
        wait_for_saves()
        now[0] = step

    if rank == 0:
        watch(folder, event)
    yield before_step


@contextlib.contextmanager
def full_disk(rank, disk, size_bytes, room, first, end, copies):
    """Fill a tmpfs of this process from one step to another; copy it there, and at the end."""
    disk, copies = Path(disk), Path(copies)
    mount(disk, size_bytes)

    def before_step(step):
        if step in (first, end):
            wait_for_saves()
        if step == first:
            status = os.statvfs(disk)
            with (disk / "filler").open("wb") as file:
                size = status.f_bavail * status.f_frsize - room
                os.posix_fallocate(file.fileno(), 0, size)
        elif step == end:
            if (disk / "run").exists():
                shutil.copytree(disk / "run", copies / "while")
            (disk / "filler").unlink()

    try:
        yield before_step
    finally:
        if (disk / "run").exists():
            shutil.copytree(disk / "run", copies / "after")


FAULTS = {each.__name__: each for each in (none, slow, killed, killed_after, copied, full_disk)}


def wait_for_saves():
    """Wait until the checkpoints of this process are written and the old ones removed."""
    for thread in threading.enumerate():
        if thread.name.startswith("checkpoint of step"):
            thread.join()


def mount(folder, size_bytes):
    """Mount a tmpfs that vanishes with this process; end it where that is not allowed."""
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if library.unshare(CLONE_NEWNS):
        if library.unshare(CLONE_NEWUSER | CLONE_NEWNS):
            sys.exit(CANNOT_MOUNT)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    options = f"size={size_bytes}".encode()
    if library.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) or library.mount(
        b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options
    ):
        sys.exit(CANNOT_MOUNT)


def main():
    rank = int(os.environ.get("RANK", "0"))
    # The deepspeed launcher puts its own option in front of everything.
    place = next(place for place, word in enumerate(sys.argv) if place and word[:2] != "--")
    log, fault = sys.argv.pop(place), sys.argv.pop(place)
    name, *arguments = json.loads(fault)
    with FAULTS[name](rank, *arguments) as before_step:
        log_samples(Path(f"{log}-rank-{rank}.jsonl"), before_step)
        runpy.run_module("pretrain", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
