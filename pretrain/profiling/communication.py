"""Counts time and bytes of collectives: DeepSpeed's own logger synchronizes at every call."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from pretrain.profiling.step_timer import Phases

# The methods of DeepSpeed's communication backend that ZeRO uses.
COLLECTIVES = frozenset(
    (
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all_single",
        "barrier",
        "broadcast",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
    )
)


class CountedCollectives:
    """DeepSpeed's communication backend, with the collectives of training steps counted.

    The time of a collective is the phase "communication": the call, and the wait for an
    asynchronous one, including the wait for slower ranks. Its bytes are its payload, the larger of
    input and output of a rank, not what the algorithm sends; a single rank counts no bytes.
    """

    def __init__(self, backend: Any, phases: Phases) -> None:
        # Of several engines in a process, the newest counts.
        is_counted = isinstance(backend, CountedCollectives)
        self._backend: Any = backend._backend if is_counted else backend
        self._phases = phases
        self._exchanges = self._backend.get_world_size() > 1
        self._payload_bytes: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._backend, name)
        return functools.partial(self._count, name, method) if name in COLLECTIVES else method

    def take_payload_bytes(self) -> dict[str, int]:
        """Return the bytes of this rank by kind of collective since the last call."""
        payload_bytes, self._payload_bytes = self._payload_bytes, {}
        return payload_bytes

    def _count(
        self, kind: str, collective: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        if not self._phases.in_step:
            return collective(*arguments, **options)
        size = max(map(_bytes, (*arguments, *options.values())), default=0)
        if self._exchanges and size:
            self._payload_bytes[kind] = self._payload_bytes.get(kind, 0) + size
        if not self._phases.covers_this_stream():
            return collective(*arguments, **options)
        with self._phases.phase("communication"):
            work = collective(*arguments, **options)
        return None if work is None else CountedWork(work, self._phases)


class CountedWork:
    """An asynchronous collective: the wait for it is communication too."""

    def __init__(self, work: Any, phases: Phases) -> None:
        self._work, self._phases = work, phases

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def wait(self, *arguments: Any) -> Any:
        """Wait as `torch.distributed.Work` does."""
        if not (self._phases.in_step and self._phases.covers_this_stream()):
            return self._work.wait(*arguments)
        with self._phases.phase("communication"):
            return self._work.wait(*arguments)


def _bytes(argument: Any) -> int:
    """Return the size of a tensor or of a list of tensors; 0 for anything else."""
    if isinstance(argument, torch.Tensor):
        return argument.nbytes
    if isinstance(argument, list):
        return sum(map(_bytes, argument))
    return 0
