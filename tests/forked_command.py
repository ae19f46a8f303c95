"""Runs `python -m MODULE WORDS` in processes forked from one that has imported everything.

Importing torch and DeepSpeed takes longer than most commands that tests run. A test process has
one fork server; a rank of a command gets a process, environment, stdout and stderr of its own.
"""

import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context, set_start_method
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_SECONDS = 300
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# This checkout, before what a machine has there: its packages may lie in a folder of their own.
PYTHONPATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
IMPORTED = [
    *("pretrain.train.start", "finetune.commands.run", "torch._inductor.compile_fx"),
    "tests.quick_start",
]


def environment(**others):
    """Return the variables of this process for a program: this checkout first, one thread, others.

    Those of a launcher, which DeepSpeed left in it, are not among them.
    """
    own = {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    return {key: os.environ[key] for key in os.environ.keys() - LAUNCHER} | own | others


def free_port():
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Started:
    """The processes of a command, and the files with what they print."""

    def __init__(self, processes, files):
        self.processes, self.files = processes, files

    def statuses(self):
        """Return the status of each process; None: it lives."""
        return [
            one.poll() if isinstance(one, subprocess.Popen) else one.exitcode
            for one in self.processes
        ]

    def send(self, number, rank=None):
        """Send a signal to those that live, or to one of them; return whether one lived."""
        statuses = self.statuses()
        for place, process in enumerate(self.processes):
            if statuses[place] is None and rank in (None, place):
                os.kill(process.pid, number)
        return None in statuses

    def wait_until(self, condition, seconds=LIMIT_SECONDS):
        """Wait for a condition, the end or the time; return whether something still runs."""
        deadline = time.monotonic() + seconds
        while None in self.statuses() and not condition() and time.monotonic() < deadline:
            time.sleep(0.005)
        return None in self.statuses()

    def kill(self):
        """Kill all of them; return whether one lived."""
        lived = self.send(signal.SIGKILL)
        self.wait_until(lambda: False)
        return lived

    def wait(self, seconds=LIMIT_SECONDS):
        """Return how each has ended: a status, or minus the number of a signal."""
        if self.wait_until(lambda: False, seconds):
            self.kill()
            raise TimeoutError(f"still running after {seconds} s: {self.output[-3000:]}")
        return self.statuses()

    @property
    def output(self):
        """What they have printed, one after the other."""
        return "".join(file.read_text(errors="replace") for file in dict.fromkeys(self.files))


def start_module(module, words=(), ranks=1, *, files, folder=ROOT, **variables):
    """Start ranks in processes that are forked.

    stdout and stderr of each rank are appended to its `files`. `folder` is the current one of all
    ranks, or a tuple of one for each; `variables` are of the environment.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    given, port, processes = environment(**variables), str(free_port()), []
    for rank in range(ranks):
        values = (str(rank), str(rank), str(ranks), "127.0.0.1", port)
        own = dict(zip(LAUNCHER, values, strict=True)) if ranks > 1 else {}
        place = folder[rank] if isinstance(folder, tuple) else folder
        arguments = (module, list(map(str, words)), *files[rank], place, given | own)
        processes.append(context.Process(target=_become_command, args=arguments))
        processes[-1].start()
    return Started(processes, [file for pair in files for file in pair])


def start_command(words, file):
    """Start a true command line, which appends what it prints to a file."""
    with file.open("a") as output:
        process = subprocess.Popen(
            [*map(str, words)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Started([process], [file])


def run_module(module, words=(), ranks=1, **how):
    """Return exit status, stdout and stderr; of several ranks, the worst, and all one by one.

    As under torchrun, a rank that fails ends the others. `how` as of `start_module`.
    """
    with tempfile.TemporaryDirectory() as place:
        files = [(Path(place, f"output{n}"), Path(place, f"errors{n}")) for n in range(ranks)]
        started = start_module(module, words, ranks, files=files, **how)
        started.wait_until(lambda: any(started.statuses()))
        status = max(abs(one or 0) for one in started.statuses())
        if started.kill() and not status:
            raise TimeoutError(f"{module} {words} takes longer than {LIMIT_SECONDS} s")
        output, errors = ("".join(map(Path.read_text, kind)) for kind in zip(*files, strict=True))
        return status, output, errors


def launcher(kind, world_size, module="pretrain"):
    """Return the words that start a module on so many ranks: `kind` is torchrun or deepspeed."""
    if kind == "torchrun":
        ranks = ("--standalone", f"--nproc-per-node={world_size}")
        return [sys.executable, "-m", "torch.distributed.run", *ranks, "-m", module]
    ranks = ("--num_accelerators", str(world_size), "--master_port", str(free_port()))
    return [str(Path(sys.executable).with_name("deepspeed")), *ranks, "--module", module]


def _become_command(module, words, output, errors, folder, environment):
    set_start_method(None, force=True)  # for its own processes, what is usual
    for number, file in ((1, output), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
