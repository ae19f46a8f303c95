"""`python -m pretrain` with a fault in the training steps of one rank, for the tests.

The environment variable FAULT is WHAT:RANK:STEP. WHAT is raise, sleep (for 12 seconds), hang (in C
code that keeps the interpreter's lock) or stop (as SIGSTOP does).
"""

import ctypes
import os
import signal
import sys
import time

from pretrain import __main__ as pretrain
from pretrain.engine.engine import Engine


def install(what, rank, step):
    train_step, steps = Engine.train_step, iter(range(1, 1 << 30))

    def faulty_step(engine, *arguments):
        if next(steps) == int(step) and engine.ranks.rank == int(rank):
            commit(what)
        return train_step(engine, *arguments)

    Engine.train_step = faulty_step


def commit(what):
    if what == "raise":
        raise ValueError("a fault of this rank alone")
    if what == "sleep":
        time.sleep(12)
    if what == "hang":
        ctypes.PyDLL(None).sleep(1000)
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    install(*os.environ["FAULT"].split(":"))
    pretrain.main(sys.argv[1:])
