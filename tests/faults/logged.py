"""`python -m pretrain`, with a log of the samples that it consumes.

python -m tests.faults.logged LOG COMMAND ...
"""

import os
import runpy
import sys
from pathlib import Path

from .sample_log import log_samples

if __name__ == "__main__":
    # The deepspeed launcher puts its own option in front of everything.
    place = next(place for place, word in enumerate(sys.argv) if place and word[:2] != "--")
    log = sys.argv.pop(place)
    log_samples(Path(f"{log}-rank-{os.environ.get('RANK', '0')}.jsonl"), lambda step: None)
    runpy.run_module("pretrain", run_name="__main__", alter_sys=True)
