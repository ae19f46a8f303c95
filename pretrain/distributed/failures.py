"""Ends the job when a rank fails, with one message that says why.

The rank that fails prints its traceback and exits without leaving the process group: its
connections close, which ends the collectives of the other ranks with an error, and each prints one
line. Ranks that the first one tells of its failure exit two seconds later without a message: a
launcher ends all ranks as soon as one has exited.
Destroying the process group could wait for ever for a rank that is stuck or gone (NCCL).
"""

import contextlib
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator

import torch

from data_prep.files.errors import UserError
from data_prep.files.quoting import on_one_line
from pretrain.config.errors import ConfigError
from pretrain.distributed.ranks import Ranks, start_ranks, stop_ranks
from pretrain.distributed.signals import Interruption, silence_unread_output

# Errors of gloo and NCCL when the process at the other end is gone.
LOST_RANK = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|Connection refused|Socket closed"
    r"|remote process exited|ncclRemoteError|Timed out waiting \d+ms"
)
LONGEST_COMPLAINT = 200  # of torch, which appends advice on its allocator
SECONDS_TO_REPORT = 2.0  # of the first rank, before the others exit


@contextlib.contextmanager
def joined_ranks(interruption: Interruption | None = None) -> Iterator[Ranks]:
    """Join the ranks, see `start_ranks`, and leave them at the end; a failure ends the job."""
    ranks = start_ranks()
    try:
        with failures_end_the_job(ranks, interruption or Interruption(prints=False)):
            yield ranks
    finally:
        stop_ranks()


@contextlib.contextmanager
def failures_end_the_job(ranks: Ranks, interruption: Interruption) -> Iterator[None]:
    """End the job on an error of this rank, or on the loss of another one.

    Raises:
        ConfigError: in a run with one rank, the memory of the GPU ran out.
        Exception: in a run with one rank, any other error of the body.
    """
    try:
        yield
    except SystemExit:  # the first rank has failed, and says why
        if not ranks.is_first:
            sys.stdout.flush()
            time.sleep(SECONDS_TO_REPORT)
            os._exit(1)
        raise
    except Exception as error:
        interruption.leave()
        lost = lost_process(error)
        known: Exception = error
        if isinstance(error, torch.OutOfMemoryError):
            complaint = next(iter(str(error).splitlines()), "out of memory")
            known = ConfigError(
                f"{complaint[:LONGEST_COMPLAINT]}; end other processes on "
                "the GPU, give a smaller --batch.micro_sequences, or set --engine.recompute_blocks "
                "true (a resume needs --elastic for these)"
            )
        if ranks.world_size > 1:
            text = f"rank {ranks.rank} failed:\n{traceback.format_exc()}"
            if lost is not None:
                text = f"rank {ranks.rank}: {lost}\n"
            elif isinstance(known, UserError):
                text = f"error: {on_one_line(known)}\n"
            try:
                silence_unread_output()
                sys.stdout.flush()
                sys.stderr.write(f"\n{text}")  # below a progress bar, if there is one
                sys.stderr.flush()
            finally:
                os._exit(1)
        if known is not error:
            raise known from error
        raise


def lost_process(error: Exception) -> str | None:
    """Return a message if the error means that another rank died, else None."""
    found = LOST_RANK.search(str(error)) if isinstance(error, RuntimeError) else None
    if found is None:
        return None
    return f"lost another rank ({found[0]}); what it printed before it ended says why"
