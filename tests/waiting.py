"""Waiting for what another process does."""

import time


def wait_until(condition, process, seconds=120):
    """Return when a condition holds; fail if the process ends before, or so much time passes."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)
