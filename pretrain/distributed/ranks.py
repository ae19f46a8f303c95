"""The ranks of a run: start and end of the process group, and collectives of Python values."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as distributed
from torch import Tensor

from data_prep.files.quoting import first_line
from pretrain.config.errors import ConfigError
from pretrain.distributed.deepspeed_library import import_deepspeed
from pretrain.distributed.freed_memory import keep_freed_memory
from pretrain.distributed.hardware import Gpu
from pretrain.distributed.processes import is_launched
from pretrain.distributed.unusable_gpus import refuse_unusable_gpus, sees_gpu

Result = TypeVar("Result")


@dataclass(frozen=True)
class Ranks:
    """The rank of this process, the number of ranks, and their kind of device."""

    rank: int
    world_size: int
    device: Literal["cpu", "cuda"]
    gpu: Gpu | None = None  # that a dry run is for; None: those of this machine

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0


def start_ranks() -> Ranks:
    """Join the process group of the launcher; without a launcher, be the only rank.

    Raises:
        ConfigError: torch cannot use the GPUs, or has none for this rank; or a variable is missing.
    """
    refuse_unusable_gpus()
    device: Literal["cpu", "cuda"] = "cuda" if sees_gpu() else "cpu"
    deepspeed = import_deepspeed()
    if device == "cpu":
        keep_freed_memory()
    else:
        number, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if number >= count:
            raise ConfigError(
                f"rank {number} of this machine has no GPU: torch sees {count} of them; start "
                "fewer ranks, or let each rank see all GPUs (of GPUs in parts, MIG, CUDA shows "
                "one only)"
            )
        torch.backends.cuda.enable_cudnn_sdp(False)  # wrong gradients, see docs/SPEED.md
        try:
            # Before the first collective: otherwise every rank would use the first GPU.
            torch.cuda.set_device(number)
            torch.ones(1, device="cuda")
        except RuntimeError as error:  # such as a GPU for which this torch has no kernels
            fix = "to use the CPU: export CUDA_VISIBLE_DEVICES="
            raise ConfigError(f"GPU {number} fails ({first_line(error)}); {fix}") from None
    if not distributed.is_initialized():
        if not is_launched():
            # Without a launcher DeepSpeed would look for MPI. A store in memory needs no port.
            os.environ["LOCAL_RANK"] = "0"
            backend = "nccl" if device == "cuda" else "gloo"
            store = distributed.HashStore()  # type: ignore[attr-defined]
            distributed.init_process_group(backend, store=store, rank=0, world_size=1)
        elif missing := {"WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} - {*os.environ}:
            raise ConfigError(f"RANK is set, and not {min(missing)}: set it too, or unset RANK")
        deepspeed.init_distributed()
    return Ranks(distributed.get_rank(), distributed.get_world_size(), device)


def on_first_rank(ranks: Ranks, action: Callable[[], Result]) -> Result:
    """Run an action on rank 0 and return its result on all ranks; a collective.

    If it fails, rank 0 raises the error and the other ranks raise SystemExit: one error is
    printed, and no rank waits for another.
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
    """Return the values of all ranks of the group, by rank; a collective."""
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
    """Sums a few numbers over the ranks; the sums are available one step later.

    An all-reduce runs in the background during a step, so that no rank waits for it. The numbers
    stay on the host, in a process group of their own: the device and the collectives of training
    are not delayed.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._group = distributed.new_group(backend="gloo") if ranks.world_size > 1 else None
        self._names: tuple[str, ...] = ()
        self._sums: Tensor | None = None
        self._work: distributed.Work | None = None

    def start(self, values: Mapping[str, float]) -> dict[str, float]:
        """Start to sum `values` over the ranks, and return the sums of the previous call.

        They are empty at the first call and after `finish`. A collective: all ranks call it equally
        often, with the same names.
        """
        before = self.finish()
        self._names = tuple(values)
        self._sums = torch.tensor(list(values.values()), dtype=torch.float64)
        if self._group is not None:
            self._work = distributed.all_reduce(self._sums, group=self._group, async_op=True)
        return before

    def finish(self) -> dict[str, float]:
        """Wait for the sums of the last `start` and return them; empty if they were returned."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        if self._sums is None:
            return {}
        sums, self._sums = self._sums.tolist(), None
        return dict(zip(self._names, sums, strict=True))
