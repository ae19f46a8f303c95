"""What a finished run writes about its launch and its end, and a disk without room."""

import errno
import os

LAUNCH = {
    "at": "2026-01-01T00:00:00+0000",
    "commit": "abc",
    "versions": {"torch": "2.13.0"},
    "device": "CPU x 2",
    "world_size": 1,
    "source": "some text",
    "held_out": "h",
    "training_data": "t",
    "manifest": "0" * 64,
    "threads": 1,
    "variables": {},
    "precision": "bfloat16",
}
RESULT = {"step": 40, "parameters": 63712, "final_learning_rate": 0.0, "peak_learning_rate": 1e-3}


def full_disk(*_, **__):
    """Raise what a write raises where no room is left."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
