"""The first hour on a GPU, in one command that may be stopped at any time and called again.

    benchmarks/gpu_session.sh [FOLDER] [--minutes 20]   what is left to do; results in FOLDER
    benchmarks/gpu_session.sh --dry-run [FOLDER]        every part in small, on a CPU

A part that passed on the same GPU with the same code and packages is not run again.
FOLDER/summary.md is a table of all results so far. Exit status: 0 if nothing failed; 1 if a part
did, or nothing could start; 3 if nothing failed and the minutes did not suffice: call it again.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from parts import PARTS
from session import Session

HERE = Path(__file__).parent
PROBE_SECONDS = 120
DRY_RUN_SECONDS = 400  # of a part on a machine that does other work, too


def main() -> int:
    """Run what is left of the session."""
    options = argparse.ArgumentParser(
        prog="gpu_session.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("folder", type=Path, nargs="?", help="default: gpu_results, or dry_run")
    options.add_argument("--caller", type=Path, default=Path(), help=argparse.SUPPRESS)
    options.add_argument("--minutes", type=float, default=20, help="for all parts together")
    options.add_argument("--dry-run", action="store_true", help="small sizes, on a CPU")
    options.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART")
    arguments = options.parse_args()
    folder = Path("dry_run" if arguments.dry_run else "gpu_results")
    if arguments.folder:
        folder = arguments.caller / arguments.folder
    if arguments.dry_run:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # of all that is started
    machine = probe(dry_run=arguments.dry_run)
    folder.mkdir(parents=True, exist_ok=True)
    session = Session(
        folder.absolute(),
        machine,
        budget=None if arguments.dry_run else 60 * arguments.minutes,
        limit=DRY_RUN_SECONDS if arguments.dry_run else None,
    )
    # Ends the program of the part, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return session.run(PARTS, arguments.only)


def probe(*, dry_run: bool) -> dict[str, Any]:
    """Return what there is to know of the machine; in a process that gives its GPU back.

    Raises:
        SystemExit: the session cannot start, with the reason.
    """
    words = [sys.executable, str(HERE / "machine.py"), *(["--dry-run"] if dry_run else [])]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        sys.exit(
            f"error: {sys.executable} does not import torch and ask for GPUs within "
            f"{PROBE_SECONDS} s; look at nvidia-smi"
        )
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or [f"status {answer.returncode}"]
        sys.exit(f"error: {lines[-1].removeprefix('error: ')}")
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as a shell reports it
