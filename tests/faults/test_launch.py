"""A killed trainer leaves nothing behind that blocks the suite."""

import os
import signal

from tqdm import tqdm

from .launch import fork_trainer


def test_a_trainer_killed_while_it_writes_its_bar_does_not_keep_the_lock_of_all_bars(tmp_path):
    def die_in_the_lock(rank):
        tqdm.get_lock().acquire()
        os.kill(os.getpid(), signal.SIGKILL)

    lock_of_processes = tqdm.get_lock().mp_lock
    launch = fork_trainer([], tmp_path / "output.txt", world_size=1, prepare=die_in_the_lock)
    assert launch.wait() == [-signal.SIGKILL]
    assert lock_of_processes.acquire(timeout=5)
    lock_of_processes.release()
