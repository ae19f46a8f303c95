"""Measures the memory of one forward and backward pass, and leaves nothing of it behind."""

import contextlib
import gc
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from pretrain.config.settings import RunSettings
from pretrain.data.batches import MaskedBatch
from pretrain.model.objective_base import Objective


class GpuMemory:
    """The memory of this rank's GPU, as torch's allocator takes it from the driver."""

    def __init__(self) -> None:
        self._before = 0

    def free_bytes(self) -> int:
        """Return what the driver has left."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    def least_free_bytes(self, num_gpus: int) -> int:
        """Return the least that the driver has left on one of the first GPUs of this machine."""
        torch.cuda.empty_cache()  # of the products by which a rate was measured
        indices = range(min(num_gpus, torch.cuda.device_count()))
        return min(torch.cuda.mem_get_info(index)[0] for index in indices)

    def begin(self) -> None:
        """Begin to measure."""
        torch.cuda.reset_peak_memory_stats()
        self._before = torch.cuda.memory_reserved()

    def peak_bytes(self) -> int:
        """Return the most since `begin`, gaps between tensors included."""
        return torch.cuda.max_memory_reserved() - self._before

    def release(self) -> None:
        """Give the cache back, and let the statistics of the run begin without the trial."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


# The devices on which a pass is tried.
TRIED: dict[str, GpuMemory] = {"cuda": GpuMemory()}


class Precision(NamedTuple):
    """The types of a run."""

    weights: torch.dtype
    autocast: torch.dtype | None


def full_batch(settings: RunSettings, rows: int, predictions: int) -> MaskedBatch:
    """Return a batch with as many predictions as one can have, without random numbers."""
    length, vocabulary = settings.data.sequence_length, settings.model.vocabulary_size
    ids_BS = torch.arange(rows * length).view(rows, length) % vocabulary
    positions_BM = torch.arange(rows)[:, None] * length + torch.arange(predictions)
    positions_M = positions_BM.flatten()
    return MaskedBatch(ids_BS, positions_M, positions_M % vocabulary)


def measured_pass(
    model: Objective,
    batch: MaskedBatch,
    scales: Sequence[float] | None,
    precision: Precision,
    device: str,
    memory: GpuMemory,
) -> float:
    """Return the peak bytes of a pass onto gradients that exist; infinity: the memory ran out.

    Weights, gradients and the states of random generators are those of before when this returns.

    Args:
        model: in training mode.
        batch: on the host.
        scales: of the branches of the blocks.
        precision: of the run.
        device: to compute on.
        memory: of it.
    """
    memory.begin()
    gpus = [torch.cuda.current_device()] if device == "cuda" else []
    taken = math.inf
    # Ended when nothing refers to the tensors of the pass, so that they can be released.
    with contextlib.suppress(torch.OutOfMemoryError), torch.random.fork_rng(gpus):
        _run_pass(model, batch, scales, precision, device)
        taken = memory.peak_bytes()
    gc.collect()  # an error in a compiled or recomputed block may leave cycles that hold tensors
    memory.release()
    return taken


def _run_pass(
    model: Objective,
    batch: MaskedBatch,
    scales: Sequence[float] | None,
    precision: Precision,
    device: str,
) -> None:
    with _weights_on(model, device, precision.weights):
        on_device = (tensor.to(device) for tensor in batch)
        with torch.autocast(device, precision.autocast, enabled=precision.autocast is not None):
            loss = model(*on_device, scales)
        loss.backward()


@contextlib.contextmanager
def _weights_on(model: Objective, device: str, dtype: torch.dtype) -> Iterator[None]:
    """Move the weights to a device in a type, with gradients, for a while."""
    originals = [(parameter, parameter.data) for parameter in model.parameters()]
    try:
        for parameter, data in originals:
            parameter.data = data.to(device, dtype)
            parameter.grad = torch.zeros_like(parameter)
        yield
    finally:
        for parameter, data in originals:
            parameter.grad = None
            parameter.data = data
