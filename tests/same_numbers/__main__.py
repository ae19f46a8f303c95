"""Run commands with the code of an old commit and of today, and compare all numbers bit for bit.

    python -m tests.same_numbers OLD_COMMIT                         8 minutes on slow cores
    python -m tests.same_numbers OLD_COMMIT --only 'zero*' exports

The commands are in jobs.py; those of opened-* read files of the old code, whose results are kept
in the folder of --work and used again. Exit status 0: all numbers are equal.
"""

import argparse
import fcntl
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .comparison import CLOCK, differences
from .jobs import JOBS, write_texts
from .side import DONE, OUTPUT

ROOT = Path(__file__).parents[2]
SHOWN = 4  # differences of a job
FILES = (
    *("metrics.jsonl", "evals.jsonl", "step_*/*.safetensors", "logits.safetensors", "*.h5"),
    *("rows/tokenizer.json", "bytes/tokenizer.json", "manifest.json"),
    *("*seed*/result.json", "predictions*"),
)
IGNORED = CLOCK | {"seconds", "source", "settings", "reason", "normalizer", "sha256"}


def main():
    arguments = read_arguments()
    command = ["git", "-C", ROOT, "rev-parse", "--verify", f"{arguments.old}^{{commit}}"]
    commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    old, today = arguments.work.resolve() / commit, ROOT / "runs" / "same_numbers" / "today"
    shutil.rmtree(today, ignore_errors=True)
    for folder in (old, today):
        folder.mkdir(parents=True, exist_ok=True)
    names = with_needed(arguments.only)
    with (old / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (old / "code").exists():
            words = f"git -C {ROOT} archive --prefix=code/ {commit} | tar -x -C {old}"
            subprocess.run(words, shell=True, check=True)
        run("old", names, old, old)
    run("today", names, today, old)
    found = {name: complaints(old / name, today / name) for name in names}
    for name, lines in found.items():
        for line in lines[:SHOWN] + [f"{len(lines) - SHOWN} more"] * (len(lines) > SHOWN):
            print(f"{name}: {line}")
    equal = sum(not lines for lines in found.values())
    print(f"{equal} of {len(names)} are equal bit for bit; see {old} and {today}")
    return 0 if equal == len(names) else 1


def read_arguments():
    parser = argparse.ArgumentParser(
        "python -m tests.same_numbers", None, __doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("old", metavar="OLD_COMMIT")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help=" ".join(JOBS))
    parser.add_argument("--work", type=Path, default=ROOT / "runs/same_numbers", metavar="FOLDER")
    arguments = parser.parse_args()
    if not all(fnmatch.filter(JOBS, pattern) for pattern in arguments.only):
        parser.error(f"--only: there are {' '.join(JOBS)}")
    return arguments


def with_needed(patterns):
    """Return the jobs of these names, and those whose folders they read, in their order."""
    wanted = {name for p in patterns for name in fnmatch.filter(JOBS, p)}
    for name in reversed(JOBS):
        if name in wanted:
            wanted |= JOBS.keys() & re.findall(r"([\w-]+)/", " ".join(JOBS[name]))
    return [name for name in JOBS if name in wanted]


def run(side, names, results, old):
    """Run with the code of a side the jobs that have not succeeded with the same words before."""
    jobs, code = {}, old / "code" if side == "old" else ROOT
    for name in names:
        words = [line.split() for line in JOBS[name]]
        places = json.dumps(words).replace("OLD/", f"{old}/").replace("NAME/", f"{name}/")
        done = results / name / DONE
        if not done.exists() or done.read_text() != places:
            jobs[name] = json.loads(places)
    variables = {
        **{"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"},
        **{"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1"},
        "HF_MODULES_CACHE": str(results / "modules"),
    }
    command = [sys.executable, Path(__file__).with_name("side.py")]
    if jobs:
        write_texts(results)
        settings = {"cwd": results, "env": os.environ | variables, "text": True, "check": True}
        subprocess.run(command, input=json.dumps(jobs), **settings)


def complaints(old, today):
    """Return what is wrong with the results of a job."""
    for folder in (old, today):
        if not (folder / DONE).exists():
            last = (folder / OUTPUT).read_text().strip().splitlines()[-1]
            return [f"failed: {last}", f"see {folder / OUTPUT}"]
    return differences(old, today, FILES, IGNORED)


if __name__ == "__main__":
    sys.exit(main())
