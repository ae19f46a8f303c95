"""The processes of a run: which one this is, and how they start, act and end together."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as distributed
from torch import Tensor

from pretrain.distributed.deepspeed_library import import_deepspeed

Result = TypeVar("Result")


@dataclass(frozen=True)
class Ranks:
    """Where this process stands among the others."""

    rank: int
    world_size: int
    device: Literal["cpu", "cuda"]

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0


def is_first_process() -> bool:
    """Return whether this process will be the first rank; known before `start_ranks`."""
    return os.environ.get("RANK", "0") == "0"


def start_ranks() -> Ranks:
    """Join the process group that the launcher prepared, or be the only process."""
    device: Literal["cpu", "cuda"] = "cuda" if torch.cuda.is_available() else "cpu"
    deepspeed = import_deepspeed()
    if device == "cuda":
        # Before the first collective: else every rank would use the first GPU.
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not distributed.is_initialized():
        if "RANK" not in os.environ:
            # Without a launcher DeepSpeed would look for MPI. A store in memory needs no port.
            os.environ["LOCAL_RANK"] = "0"
            backend = "nccl" if device == "cuda" else "gloo"
            store = distributed.HashStore()  # type: ignore[attr-defined]
            distributed.init_process_group(backend, store=store, rank=0, world_size=1)
        deepspeed.init_distributed()
    return Ranks(distributed.get_rank(), distributed.get_world_size(), device)


def on_first_rank(ranks: Ranks, action: Callable[[], Result]) -> Result:
    """Let rank 0 act and give its result to all.

    Where it fails, it raises its error and the other ranks leave quietly: the user reads one
    error, and no rank waits for one that gave up.
    """
    if ranks.world_size == 1:
        return action()
    outcome: list[Any] = [None, False]
    try:
        if ranks.is_first:
            outcome[0] = action()
        outcome[1] = True
    finally:
        distributed.broadcast_object_list(outcome)
    if not outcome[1]:
        raise SystemExit(1)
    return outcome[0]  # type: ignore[no-any-return]


def from_all_ranks(value: Any, ranks: Ranks, *, group: Any = None) -> list[Any]:
    """Return what each rank has brought, in order; every rank of the group must call it."""
    if ranks.world_size == 1:
        return [value]
    values = [value] * ranks.world_size
    distributed.all_gather_object(values, value, group=group)
    return values


def stop_ranks() -> None:
    """Leave the process group."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


class DelayedAllReduce:
    """Adds up a few numbers over the ranks, one step late.

    The sum of a step is started when the step begins and read when the next one does: the ranks
    then have had a whole step to exchange it. The numbers stay on the host, in a process group of
    their own, so that neither the device nor the collectives of training notice.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._group = distributed.new_group(backend="gloo") if ranks.world_size > 1 else None
        self._names: tuple[str, ...] = ()
        self._sums: Tensor | None = None
        self._work: distributed.Work | None = None

    def exchange(self, values: Mapping[str, float]) -> dict[str, float]:
        """Give the numbers of this rank, and get the sums over all ranks of what was given before.

        Every rank must call it equally often, with the same names.

        Returns:
            The sums of the call before this one; empty at the first call.
        """
        before = self.settle()
        self._names = tuple(values)
        self._sums = torch.tensor(list(values.values()), dtype=torch.float64)
        if self._group is not None:
            self._work = distributed.all_reduce(self._sums, group=self._group, async_op=True)
        return before

    def settle(self) -> dict[str, float]:
        """Return the sums of the last call, once; every rank must call it."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        if self._sums is None:
            return {}
        sums, self._sums = self._sums.tolist(), None
        return dict(zip(self._names, sums, strict=True))
