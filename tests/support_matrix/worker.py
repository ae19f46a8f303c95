"""Tries cells out, on every rank of this job; run it under torchrun or as a single process.

worker.py OUTPUT CELL ...   (numbers of cells in `all_cells`)
"""

import json
import sys
import time
import traceback
from pathlib import Path

from pretrain.distributed.ranks import start_ranks, stop_ranks
from tests.support_matrix.cells import all_cells
from tests.support_matrix.trial import try_cell


def main(output, *numbers):
    ranks = start_ranks()
    cells = all_cells(ranks.world_size)
    with Path(output).open("a") as stream:
        for number in map(int, numbers):
            cell, began = cells[number], time.perf_counter()
            try:
                found = try_cell(cell, ranks)
                complaint, values = found.complaint(cell.precision), found[:3]
            except Exception as error:
                if ranks.world_size > 1:
                    raise  # the launcher ends the other ranks, which would wait for this one
                traceback.print_exc()
                complaint, values = f"{type(error).__name__}: {error}", None
            if ranks.is_first:
                seconds = time.perf_counter() - began
                stream.write(json.dumps({"cell": number, "complaint": complaint}) + "\n")
                stream.flush()
                print(f"{cell}: {complaint or 'works'} {values} {seconds:.1f} s", flush=True)
    stop_ranks()


if __name__ == "__main__":
    main(*sys.argv[1:])
