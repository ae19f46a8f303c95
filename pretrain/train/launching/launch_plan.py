"""How a run is started on this machine: as one process, or by the deepspeed launcher."""

import argparse
import contextlib
import os
import re
import shutil
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.commands.options import at_least_1
from data_prep.files.processors import THREADS, cpu_count, threads_each
from data_prep.files.program import COMMAND_VARIABLE, shell_command
from data_prep.files.quoting import quoted
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import RESULT_FILE
from pretrain.distributed.gpus import VARIABLE, visible_gpus
from pretrain.distributed.processes import is_launched
from pretrain.train.launching.child import Child, run_child, trainer_words

MACHINE = re.compile(r"(\S+)\s+slots=([1-9]\d*)")  # in a host file, as DeepSpeed reads it

OPTIONS = ("gpus", "hostfile")  # of `add_launch_options`


@dataclass(frozen=True)
class LaunchPlan:
    """One process, or the words of the launcher of several."""

    launcher: tuple[str, ...] = ()  # up to `--module`; empty: one process without a launcher
    only_gpu: str | None = None  # the GPU of one process, where it could see several
    several_machines: bool = False
    ranks: int = 1  # processes, of all machines
    threads: int | None = None  # of one process that shares the processors with others

    @property
    def ranks_here(self) -> int | None:
        """Processes, if this machine executes all of them."""
        return None if self.several_machines else self.ranks

    def apply(self) -> None:
        """Make this process the one of the plan; before CUDA is initialised."""
        os.environ.update(self.variables())

    def child(self, words: Sequence[str], output: Path | None = None) -> Child:
        """Return `pretrain WORDS` in new processes, to be started."""
        variables = self.variables()
        if not self.launcher:
            return Child(trainer_words(*words), variables=variables, output=output)
        if not self.several_machines:
            # The launcher would ignore it, and report that; --include names the same GPUs.
            variables.pop(VARIABLE, None)
        return Child(
            [*self.launcher, "--module", "pretrain", *words],
            variables=variables,
            # On several machines the launcher itself must act on a signal.
            has_ranks=not self.several_machines,
            output=output,
        )

    def train(self, words: Sequence[str], folder: Path) -> None:
        """Run `pretrain train WORDS`, which trains in this run folder, to its end.

        Raises:
            SystemExit: it failed, or a signal asked to stop.
            ConfigError: it ended without a result.
        """
        ended = run_child(self.child(["train", *words]))
        if ended.stopped or ended.status:
            sys.exit(ended.status)
        # The deepspeed launcher reports success when its workers are killed by a signal.
        if not (folder / RESULT_FILE).exists():
            raise ConfigError(f"{folder.name} ended without a result; see its last messages above")

    def variables(self) -> dict[str, str]:
        """Return the environment of the trainer.

        The programs of this Python are on its PATH, although its environment need not be active:
        DeepSpeed compiles with ninja. The numbers of GPUs are nvidia-smi's.
        """
        variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} | dict(os.environ)
        search = variables.get("PATH", os.defpath).split(os.pathsep)
        own = str(Path(sys.executable).parent)
        if own not in search:
            variables["PATH"] = os.pathsep.join([own, *search])
            variables[COMMAND_VARIABLE] = shell_command()  # for the PATH that the user has
        if self.only_gpu is not None:
            variables[VARIABLE] = self.only_gpu
        if self.threads is not None:
            variables[THREADS] = str(self.threads)
        return variables


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `plan_launch` reads."""
    parser.add_argument(
        "--gpus",
        type=at_least_1,
        metavar="N",
        help="use N GPUs of each machine (default: all visible ones; with --hostfile all slots)",
    )
    parser.add_argument(
        "--hostfile", type=Path, metavar="FILE", help="use the machines in this DeepSpeed host file"
    )


def plan_launch(gpus: int | None, hostfile: Path | None) -> LaunchPlan:
    """Plan a start on these GPUs: one process for one GPU or for the CPU, else the launcher.

    A rank is one process already.

    Args:
        gpus: number, on each machine; None: all that are visible.
        hostfile: of DeepSpeed; None: this machine.

    Raises:
        ConfigError: there are fewer GPUs or slots, no such file, no machine in it, or this process
            is a rank already.
    """
    if is_launched():
        if (gpus, hostfile) == (None, None):
            return LaunchPlan()
        raise ConfigError(
            f"--gpus and --hostfile start a launcher, but this process has one already "
            f"(RANK={os.environ['RANK']}); remove them, or: unset RANK"
        )
    if hostfile is not None:
        if not hostfile.is_file():
            raise ConfigError(f"--hostfile {hostfile}: there is no such file")
        lines = [line.strip() for line in hostfile.read_text("utf-8-sig", "replace").splitlines()]
        machines: dict[str, int] = {}
        for line in [line for line in lines if line and not line.startswith("#")] or [""]:
            if (found := MACHINE.match(line)) is None or found[1] in machines:
                raise ConfigError(
                    f"--hostfile {hostfile}: {quoted(line)} names no machine, or one again; "
                    "write a line for each: NAME slots=8"
                )
            machines[found[1]] = int(found[2])
        slots = list(machines.values())
        if gpus is not None and gpus > min(slots):
            raise ConfigError(
                f"--gpus {gpus}: --hostfile {hostfile} has a machine with slots={min(slots)}; ask "
                "for fewer, or leave --gpus out"
            )
        num_gpus = () if gpus is None else ("--num_gpus", str(gpus))
        # A single one is this machine to DeepSpeed, whatever its name; it would call it by ssh.
        here = ("--no_ssh_check", "--master_addr", "127.0.0.1") if len(slots) == 1 else ()
        words = (_deepspeed(), *num_gpus, *here, "--hostfile", str(hostfile))
        ranks = sum(slots) if gpus is None else gpus * len(slots)
        return LaunchPlan(words, several_machines=len(slots) > 1, ranks=ranks)
    visible = _visible(gpus)
    return _plans_on([visible[:gpus]], visible)[0]


def plan_launches(
    gpus: int | None, hostfile: Path | None, *, runs: int, at_once: int | None = None
) -> list[LaunchPlan]:
    """Plan the starts of several runs: at most as many at once as there are plans, on own GPUs.

    On several machines there is one plan, and without GPUs unless more are asked for: these have
    equal shares of the processors.

    Args:
        gpus: as of `plan_launch`, for all runs together.
        hostfile: likewise.
        runs: number of them.
        at_once: number of plans; None: as many as there are GPUs.

    Raises:
        ConfigError: as `plan_launch`, or there are fewer GPUs or processors than runs at once.
    """
    if hostfile is not None:
        if at_once not in (None, 1):
            raise ConfigError(f"--at-once {at_once}: a run on --hostfile has all of its machines")
        return [plan_launch(gpus, hostfile)]
    visible = _visible(gpus)
    used = visible[:gpus]
    count = len(used)
    most, what = (count, "GPUs") if used else (cpu_count(), "processors")
    if at_once is not None and at_once > most:
        raise ConfigError(
            f"--at-once {at_once}: there are {most} {what} for these runs; ask for fewer"
        )
    if at_once is not None and at_once > 1 and not used:
        count = min(at_once, runs)
        return [LaunchPlan(threads=threads_each(count)) for _ in range(count)]
    runs = min(runs, at_once or runs)
    each = max(1, count // runs)
    at_once = max(1, min(runs, count // each))
    parts = [used[number * each : (number + 1) * each] for number in range(at_once)]
    return _plans_on(parts, visible)


def _visible(gpus: int | None) -> list[str]:
    visible = visible_gpus()
    if gpus is not None and gpus > len(visible):
        raise ConfigError(
            f"--gpus {gpus}: there are {len(visible)} NVIDIA GPUs here (nvidia-smi --list-gpus, "
            f"{VARIABLE}); ask for fewer, or leave --gpus out"
        )
    return visible


def _plans_on(parts: Sequence[Sequence[str]], visible: Sequence[str]) -> list[LaunchPlan]:
    """Plan a start on each part of the GPUs; other runs on this machine have other ports."""
    plans = []
    for part, port in zip(parts, _free_ports(len(parts)), strict=True):
        if len(part) < 2:
            plans.append(LaunchPlan(only_gpu=part[0] if part and len(visible) > 1 else None))
            continue
        which = ("--num_gpus", str(len(part)))
        if len(parts) > 1 or VARIABLE in os.environ:
            which = ("--include", f"localhost:{','.join(part)}")
        words = (_deepspeed(), *which, "--master_port", str(port))
        plans.append(LaunchPlan(words, ranks=len(part)))
    return plans


def _deepspeed() -> str:
    """Return the launcher of this environment, whether or not it is active."""
    program = Path(sys.executable).with_name("deepspeed")
    found = str(program) if program.is_file() else shutil.which("deepspeed")
    if found is None:
        raise ConfigError(
            f"there is no program deepspeed in {program.parent}; install deepspeed again"
        )
    return found


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:  # all are open together, so that no port comes twice
            probe.bind(("", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
