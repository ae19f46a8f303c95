"""Runs `python -m MODULE WORDS` in a process forked from one that has imported everything.

Importing torch and DeepSpeed takes longer than most commands that tests run. A test process has
one fork server; a command gets a process, environment, folder, stdout and stderr of its own.
"""

import os
import runpy
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_SECONDS = 300
LAUNCHER = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
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


def run_module(module, words):
    """Return exit status, stdout and stderr."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        arguments = (module, list(map(str, words)), output, errors, environment())
        process = context.Process(target=_become_command, args=arguments)
        process.start()
        process.join(LIMIT_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            raise TimeoutError(f"{module} {words} takes longer than {LIMIT_SECONDS} s")
        return process.exitcode, output.read_text(), errors.read_text()


def _become_command(module, words, output, errors, environment):
    for number, file in ((1, output), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
