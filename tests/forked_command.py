"""Runs `python -m MODULE WORDS` in processes forked from one that has imported everything.

Importing torch and DeepSpeed takes longer than most commands that tests run. A test process has
one fork server; a rank of a command gets a process, environment, stdout and stderr of its own.
"""

import os
import runpy
import socket
import sys
import tempfile
import time
from multiprocessing import connection, get_context
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_SECONDS = 300
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# This checkout, before what a machine has there: its packages may lie in a folder of their own.
PYTHONPATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
IMPORTED = ["pretrain.train.start", "finetune.commands.run", "torch._inductor.compile_fx"]


def inherited_environment():
    """Return the variables of this process, but those of a launcher that DeepSpeed left in it."""
    return {name: value for name, value in os.environ.items() if name not in LAUNCHER}


def environment(**others):
    """Return them with this checkout on the path, one thread, and others, for a program."""
    own = {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    return inherited_environment() | own | others


def free_port():
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_module(module, words=(), ranks=1, **variables):
    """Return exit status, stdout and stderr; of several ranks, the worst, and all one by one.

    As under torchrun, a rank that fails ends the others.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    given, port = environment(**variables), str(free_port())
    with tempfile.TemporaryDirectory() as folder:
        files, processes = [], []
        for rank in range(ranks):
            files.append((Path(folder, f"output{rank}"), Path(folder, f"errors{rank}")))
            values = (str(rank), str(rank), str(ranks), "127.0.0.1", port)
            own = dict(zip(LAUNCHER, values, strict=True)) if ranks > 1 else {}
            arguments = (module, list(map(str, words)), *files[-1], given | own)
            processes.append(context.Process(target=_become_command, args=arguments))
            processes[-1].start()
        running, deadline = processes, time.monotonic() + LIMIT_SECONDS
        while running and not any(one.exitcode for one in processes):
            connection.wait([one.sentinel for one in running], deadline - time.monotonic())
            running = [one for one in running if one.exitcode is None]
            if time.monotonic() > deadline:
                break
        status = max(abs(one.exitcode or 0) for one in processes)
        for process in running:
            process.kill()
            process.join()
        if running and not status:
            raise TimeoutError(f"{module} {words} takes longer than {LIMIT_SECONDS} s")
        output, errors = ("".join(map(Path.read_text, kind)) for kind in zip(*files, strict=True))
        return status, output, errors


def _become_command(module, words, output, errors, environment):
    for number, file in ((1, output), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
