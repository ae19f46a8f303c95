"""Disturb training runs, resume them, and compare them with undisturbed runs.

    python -m tests.faults                        everything; 12 minutes on two idle cores
    python -m tests.faults --only kills,disk      some kinds of fault
    python -m tests.faults --short                a few of each kind

Prints faults tried and survived, samples lost and repeated. Exit status 0: all were survived.
The log of samples must hold each of the run once, in order. Every kind but `elastic` and `shards`
ends with the undisturbed run, bit for bit:

    kills         SIGKILL at random moments, ZeRO 0 to 3, with 0 and 2 loader workers
    writes        SIGKILL at each call that creates, renames, removes or syncs a file of the run
    disk          a full tmpfs for two saves, a full /dev/shm with loader workers: one line per
                  failed save, later saves work
    checkpoints   each file of the newest one flipped, truncated, missing, empty; forged counters;
                  that of another step: a warning, and the one before is used
    shards        truncated, missing: one line names the file
    killed-rank   SIGKILL of one of two ranks, torchrun and deepspeed: the job ends within 30 s
    stopped-rank  one of two ranks stopped for 15 s: the other prints its stacks
    worlds        all ranks killed, 2 and 3 ranks, ZeRO 0 to 3
    elastic       killed, resumed on other ranks and ZeRO stages: the samples in order, losses
                  within 1e-4 only
    signals       SIGTERM, SIGUSR1, SIGINT; to one rank, to torchrun: saved with status 0;
                  SIGTERM as a second one ends it
"""

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from pretrain.distributed.deepspeed_library import import_deepspeed

from .case import Case, outcome_of, run_case
from .kinds import KINDS, cases_of
from .launch import adopt_orphans, kill_descendants
from .material import Material, Variant
from .outcome import Outcome, as_record, as_table, remarks
from .run import train_reference

CASE_LIMIT_SECONDS = 600.0  # the longest take three minutes on a quiet machine
# What a trainer imports later, which takes seconds: imported before the forks.
IMPORTED_LATE = (
    *("pretrain.train.start", "torch._inductor.compile_fx", "torch.utils.data"),
    "deepspeed.runtime.zero.muon.muon_optimizer",
)


def main() -> int:
    """Run the suite and return its exit status."""
    arguments = read_arguments()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        # numpy starts threads at import, and a process with threads must not fork.
        command = [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "OMP_NUM_THREADS": "1"})
    with tempfile.TemporaryDirectory(prefix="tupelo-faults-") as temporary:
        folder = (arguments.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            sys.exit(f"error: {folder} is not empty; give --keep a new folder")
        return run_suite(arguments, Material(folder))


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default=",".join(KINDS), help=f"of: {', '.join(KINDS)}")
    parser.add_argument("--count", type=int, default=50, help="random kills (default: 50)")
    parser.add_argument("--seed", type=int, default=0, help="of all random moments")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at a time")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep all runs there")
    parser.add_argument("--json", type=Path, default=Path("runs/faults.json"), metavar="FILE")
    parser.add_argument("--short", action="store_true", help="a few faults of each kind")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if unknown := [kind for kind in arguments.only if kind not in KINDS]:
        parser.error(f"--only: there is no {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return arguments


def run_suite(arguments: argparse.Namespace, material: Material) -> int:
    """Prepare, run all cases, report; return 0 if all faults were survived."""
    make_ready_to_fork()
    start, outcomes = time.monotonic(), dict[int, Outcome]()
    cases = cases_of(arguments.only, count=arguments.count, short=arguments.short)
    if not cases:
        sys.exit(f"error: --short tries no {', '.join(arguments.only)}; leave it out")
    try:
        prepare(cases, material, arguments)
        in_parallel(cases, material, material.folder / "cases", arguments, outcomes, "faults")
    except KeyboardInterrupt:
        print("\nstopped; the results are incomplete", file=sys.stderr)
    finally:
        kill_descendants()
    seconds, known = time.monotonic() - start, [outcomes[index] for index in sorted(outcomes)]
    print(f"\n{as_table(known)}\n\n{remarks(known)}\n{seconds:.0f} s in all")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    record = {"seconds": seconds, "seed": arguments.seed, "outcomes": as_record(known)}
    arguments.json.write_text(json.dumps(record, indent=1) + "\n")
    is_whole = len(known) == len(cases)
    return 0 if is_whole and all(outcome.is_good for outcome in known) else 1


def make_ready_to_fork() -> None:
    """Import everything that a forked trainer needs, without starting a thread."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    tqdm.monitor_interval = 0  # tqdm's thread
    import_deepspeed()
    for module in IMPORTED_LATE:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a child of several threads may hang"


def prepare(cases: list[Case], material: Material, arguments: argparse.Namespace) -> None:
    """Build the shards and train the undisturbed runs that the cases need."""
    variants = sorted({variant for case in cases for variant in case.variants}, key=str)
    shards = Case("shards are built", "", 1, (), lambda bench: material.prepare())
    references = [
        Case("undisturbed", variant.name, 1, (), lambda bench, v=variant: _train(bench, v))
        for variant in variants
    ]
    outcomes: dict[int, Outcome] = {}
    for stage, group in {"shards": [shards], "undisturbed runs": references}.items():
        place = material.folder / "preparation" / stage
        in_parallel(group, material, place, arguments, outcomes, stage)
        if any(outcome.problems for outcome in outcomes.values()):
            raise SystemExit(f"error: nothing to compare with\n{remarks(outcomes.values())}")


def in_parallel(
    cases: list[Case],
    material: Material,
    places: Path,
    arguments: argparse.Namespace,
    outcomes: dict[int, Outcome],
    what: str,
) -> None:
    """Run cases, `arguments.jobs` at a time, and note their outcomes by their numbers."""
    waiting, running = list(enumerate(cases)), {}
    total = sum(case.faults for case in cases)
    with tqdm(total=total, desc=what) as bar:
        while waiting or running:
            while waiting and len(running) < arguments.jobs:
                index, case = waiting.pop(0)
                place = places / f"{index:03d}-{case.kind}".replace(" ", "-")
                process = run_case(case, material, place, arguments.seed)
                running[index] = (process, place, time.monotonic() + CASE_LIMIT_SECONDS)
            for index, (process, place, deadline) in list(running.items()):
                if process.exitcode is None and time.monotonic() > deadline:
                    process.kill()
                if process.exitcode is not None:
                    outcomes[index] = outcome_of(cases[index], place)
                    bar.update(cases[index].faults)
                    del running[index]
            time.sleep(0.02)


def _train(bench: Any, variant: Variant) -> None:
    train_reference(bench.material, variant)


if __name__ == "__main__":
    sys.exit(main())
