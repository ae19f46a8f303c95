"""A run folder belongs to one launch at a time."""

import os
import signal
import time

import pytest

from pretrain.config import ConfigError
from pretrain.run_record import RunRecord


def test_a_second_launch_is_refused_while_the_first_one_lives(tmp_path):
    """A kill of the first frees the folder at once, though processes that it forked live on."""
    ready, tell = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            record = RunRecord(tmp_path)
            record.hold()
            worker = os.fork()
            if worker:
                os.write(tell, str(worker).encode())
            time.sleep(60)
        finally:
            os._exit(0)
    os.close(tell)
    worker = int(os.read(ready, 20))
    try:
        with pytest.raises(ConfigError, match="another process is training in .*; stop it, or"):
            RunRecord(tmp_path).hold()
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        RunRecord(tmp_path).hold()  # at once
    finally:
        os.kill(worker, signal.SIGKILL)
