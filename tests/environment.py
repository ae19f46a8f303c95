"""The environment of programs that tests start."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
# This checkout, before what a machine has there: its packages may lie in a folder of their own.
PYTHONPATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def environment(**others):
    """Return the variables of this process, with this checkout on its path, one thread, others."""
    return {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", **others}
