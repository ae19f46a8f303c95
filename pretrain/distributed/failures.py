"""What the end of one rank means to the others: the job ends, and one message says why.

The rank that fails prints its traceback and leaves without a farewell: connections close when a
process ends, which wakes the others out of their collectives. Each of these says in one line that
it lost another rank. Leaving the process group in good order instead could wait for ever for a
rank that is stuck (NCCL).
"""

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator
from typing import NoReturn

from data_prep.files.workers import WorkerDied
from data_prep.shards.manifest import ShardError
from pretrain.config.errors import AnomalyError, ConfigError
from pretrain.distributed.ranks import Ranks
from pretrain.distributed.signals import Interruption, silence_unread_output

# What gloo and NCCL say when the process at the other end is gone.
LOST_RANK = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|Connection refused|Socket closed"
    r"|remote process exited|ncclRemoteError|Timed out waiting \d+ms"
)
# A line says all about these.
USER_ERRORS = (ConfigError, ShardError, AnomalyError)
LOST_WORKER = re.compile(r"DataLoader worker \(pid.*?\) (?:is killed by signal: \w+|exited \w+)")
# Raised instead where it was sending a batch; what ranks tell each other ends in a RuntimeError.
LOST_BATCH = (ConnectionRefusedError, ConnectionResetError, EOFError)


@contextlib.contextmanager
def failures_end_the_job(ranks: Ranks, interruption: Interruption) -> Iterator[None]:
    """Turn an error of this rank, or the loss of another one, into the end of the job.

    Raises:
        WorkerDied: of a run with one rank: a process that prepares batches was killed.
        Exception: whatever else its body raised, in a run with one rank.
    """
    try:
        yield
    except Exception as error:
        interruption.leave()
        lost = lost_process(error)
        if ranks.world_size > 1:
            _end(ranks, error, lost)
        if lost is not None:
            raise WorkerDied(lost) from None
        raise


def lost_process(error: Exception) -> str | None:
    """Return the line for the death of another process, None for an error of this one."""
    text = str(error) if isinstance(error, RuntimeError) else ""
    worker = LOST_WORKER.search(text)
    if worker or isinstance(error, LOST_BATCH):
        reason = worker[0] if worker else type(error).__name__
        return (
            f"a process that prepares batches is gone ({reason}); the kernel kills what takes "
            "too much memory: lower data.loader_workers, or make /dev/shm larger"
        )
    if found := LOST_RANK.search(text):
        return f"lost another rank ({found[0]}); what it printed before it ended says why"
    return None


def _end(ranks: Ranks, error: Exception, lost: str | None) -> NoReturn:
    text = f"rank {ranks.rank} failed:\n{traceback.format_exc()}"
    if lost is not None:
        text = f"rank {ranks.rank}: {lost}\n"
    elif isinstance(error, USER_ERRORS):
        text = f"error: {error}\n"
    try:
        silence_unread_output()
        sys.stdout.flush()
        sys.stderr.write(f"\n{text}")  # below a progress bar, if there is one
        sys.stderr.flush()
    finally:
        os._exit(1)
