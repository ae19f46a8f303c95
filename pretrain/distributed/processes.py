"""Which process this is: alone, a rank of a launcher, or one that another of ours has started.

Imports no torch: a start asks this first.
"""

import os

# The variable with the process that has started this one, and passes signals on to it.
STARTER = "TUPELO_STARTER"


def is_launched() -> bool:
    """Return whether a launcher started this process, as one of the ranks of a job."""
    return "RANK" in os.environ


def is_first_process() -> bool:
    """Return whether this process will be the first rank."""
    return os.environ.get("RANK", "0") == "0"


def launched_ranks() -> int | None:
    """Return how many ranks the launcher of this process started; None without a launcher."""
    return int(os.environ["WORLD_SIZE"]) if "WORLD_SIZE" in os.environ else None


def starter() -> int | None:
    """Return the process that started this one as a part of its work: of ours, or a launcher."""
    if STARTER in os.environ:
        return int(os.environ[STARTER])
    return os.getppid() if is_launched() else None
