"""Try out every combination that is supported, and write docs/SPEED.md.

    python -m tests.support_matrix                 all of them, on one rank and on two
    python -m tests.support_matrix --quick         few, with every pair of values; writes nothing

Compiling takes long: of the compiled ones, a choice is tried in which every pair of values occurs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from .cells import all_cells, covering, supported
from .table import rewrite, support_table

WORKER = "tests.support_matrix.worker"
ROOT = Path(__file__).parents[2]


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.support_matrix", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="few, none compiled, nothing written")
    arguments = parser.parse_args()
    if torch.cuda.is_available() and max(arguments.ranks) > torch.cuda.device_count():
        sys.exit(f"{max(arguments.ranks)} ranks need as many GPUs; give --ranks 1")
    chosen = chosen_cells(arguments.ranks, quick=arguments.quick)
    results = {}
    for ranks in arguments.ranks:
        results |= run_cells([cell for cell in chosen if cell.ranks == ranks], ranks)
    complaints = {cell: results.get(cell, "was not tried") for cell in chosen}
    failed = {cell: complaint for cell, complaint in complaints.items() if complaint}
    for cell, complaint in failed.items():
        print(f"FAILED: {cell}: {complaint}")
    print(support_table(failed))
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} that were tried work as they should")
    if not arguments.quick:
        rewrite(support_table(failed))
    sys.exit(1 if failed else 0)


def chosen_cells(ranks, *, quick):
    """Return which of the supported combinations are tried."""
    cells = [cell for count in ranks for cell in supported(count)]
    plain = [cell for cell in cells if not cell.compiles]
    if quick:
        return covering(plain)
    compiled = [cell for cell in cells if cell.compiles]
    return plain + covering(compiled)


def run_cells(cells, ranks):
    """Try cells out in one job of so many ranks; return the complaint about each."""
    job = [sys.executable, "-m"]
    if ranks > 1:
        job += ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    known = all_cells(ranks)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.jsonl"
        output.touch()
        numbers = [str(known.index(cell)) for cell in cells]
        subprocess.run([*job, WORKER, str(output), *numbers], cwd=ROOT, check=False)
        lines = [json.loads(line) for line in output.read_text().splitlines()]
    return {known[line["cell"]]: line["complaint"] for line in lines}


if __name__ == "__main__":
    main()
