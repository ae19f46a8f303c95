"""Try out every combination that is supported, and write docs/SPEED.md.

python -m tests.support_matrix                 all of them, on one rank and on two
python -m tests.support_matrix --quick         few, with every pair of values; writes nothing
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch

from tests.forked_command import run_module

from .cells import Cell, chosen_cells
from .table import rewrite, support_table
from .trial import TOLERANCES

HOURS = 6  # the most that a job takes


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m tests.support_matrix", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few, none compiled, nothing written")
    arguments = parser.parse_args(words)
    tried, failed = 0, {}
    for ranks in (1,) if torch.cuda.device_count() == 1 else (1, 2):
        found = run_cells(ranks, ["--quick"] * arguments.quick)
        for cell in chosen_cells(ranks, quick=arguments.quick):
            tried += 1
            if complaint := complaint_of(cell, found.get(cell)):
                failed[cell] = complaint
                print(f"FAILED: {cell}: {complaint}")
    print(support_table(failed))
    print(f"\n{tried - len(failed)} of {tried} that were tried work as they should")
    if not arguments.quick:
        rewrite(support_table(failed))
    return 1 if failed else 0


def run_cells(ranks, options):
    """Try cells out in one job of so many ranks; return what was found of each."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.jsonl"
        output.touch()
        words = [output, *options]
        finished = run_module("tests.support_matrix.trial", words, ranks, seconds=HOURS * 3600)
        print(*finished[1:], sep="")
        lines = [json.loads(line) for line in output.read_text().splitlines()]
    return {Cell(*cell): found for cell, found in lines}


def complaint_of(cell, found):
    """Return what is wrong with (loss, norm, weights, resumes) of a cell, or an empty string."""
    if found is None:
        return "was not tried: the job has ended"
    *differences, resumes = found
    names = zip(("loss", "norm", "weights"), differences, TOLERANCES[cell.precision], strict=True)
    problems = [
        f"{name} differs by {value:.1e}" for name, value, most in names if not value <= most
    ]
    return ", ".join(problems + ["a resumed engine trains differently"] * (not resumes))


if __name__ == "__main__":
    sys.exit(main())
