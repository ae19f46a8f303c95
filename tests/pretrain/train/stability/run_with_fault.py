"""`python -m pretrain` with a fault in the training steps of one rank, for the tests.

The environment variable FAULT is WHAT:RANK:STEP. WHAT is raise, or hang (for 8 seconds, in C code
that keeps the interpreter's lock). Or it is memory:RANK:BYTES, which this rank has left, or
evaluate:0:SECONDS, which each evaluation takes more.
"""

import ctypes
import os
import sys
import time

from pretrain import __main__ as pretrain
from pretrain.engine import micro_batches
from pretrain.engine.engine import Engine
from pretrain.train import trainer


def install(what, rank, step):
    if what == "memory":
        left = {int(rank): int(step)}
        micro_batches.free_bytes = lambda ranks: left.get(ranks.rank, 1 << 40)
        return
    if what == "evaluate":
        evaluate = Engine.evaluate
        Engine.evaluate = lambda *arguments: time.sleep(int(step)) or evaluate(*arguments)
        return
    train_step, steps = Engine.train_step, iter(range(1, 1 << 30))

    def faulty_step(engine, *arguments):
        if next(steps) == int(step) and engine.ranks.rank == int(rank):
            if what == "raise":
                raise ValueError("a fault of this rank alone")
            ctypes.PyDLL(None).sleep(8)
        return train_step(engine, *arguments)

    Engine.train_step = faulty_step


if __name__ == "__main__":
    trainer.HANG_MINUTES = 0.05
    install(*os.environ["FAULT"].split(":"))
    pretrain.main(sys.argv[1:])
