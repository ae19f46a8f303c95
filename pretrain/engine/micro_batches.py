"""Chooses how many sequences a rank takes in a pass: `batch.micro_sequences = "auto"`.

It divides a rank's share of the global batch. A CPU takes the largest number that fits by the
estimate of footprint.py, and so does a dry run. A GPU tries it, before DeepSpeed gets the model:
one forward and backward pass of a copy of the model, at full depth, with every prediction counted,
beside a block of memory as large as what the rank will hold besides. Where that runs out of memory,
the next smaller number is tried. All ranks take the least number that any of them found.
"""

import contextlib
import copy
import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from data_prep.masking import predictions_per_row
from pretrain.config.batch import (
    micro_batches_per_step,
    micro_sequences,
    possible_micro_sequences,
    with_micro_sequences,
)
from pretrain.config.ds_config import autocast_type, weight_type
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings
from pretrain.data.batches import MaskedBatch
from pretrain.distributed.ranks import Ranks, from_all_ranks
from pretrain.engine.footprint import pass_bytes, rank_bytes, size
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.objectives.objective import Objective
from pretrain.profiling.free_memory import free_memory_bytes

# Of the free memory. The rest is for what is not counted: buffers of NCCL and cuBLAS, gaps between
# tensors, and the copy of a gradient while it is reduced.
SHARE = 0.85

# More tokens in a pass gain nothing on a GPU. With these, a product of width 768 has 3072 tiles of
# 128 x 128 for the 132 multiprocessors of an H100, so that the last ones leave 3 % idle; and even a
# norm moves 0.3 GB, which takes 15 times as long as to launch it.
USEFUL_TOKENS = 65_536

# The devices on which a pass is tried: they raise an error when memory runs out.
TRIED = ("cuda",)

AS_SET, AS_BEFORE = "as set", "as before the resume"


@dataclass(frozen=True)
class MicroBatches:
    """How the sequences of an optimizer step are divided into passes, and why."""

    sequences: int  # of a rank in a pass
    per_step: int  # of a rank, accumulated
    reason: str

    def describe(self) -> str:
        """Return a line for the user."""
        return f"{self.per_step} x {self.sequences} sequences a step and rank ({self.reason})"

    def of(self, settings: RunSettings) -> RunSettings:
        """Return settings with this number in the place of "auto"."""
        return with_micro_sequences(settings, self.sequences)

    def filled_in(self, ds_config: dict[str, Any]) -> dict[str, Any]:
        """Return a DeepSpeed configuration with these numbers."""
        numbers = {
            "train_micro_batch_size_per_gpu": self.sequences,
            "gradient_accumulation_steps": self.per_step,
        }
        return {**ds_config, **numbers}


def choose_micro_batches(
    model: Objective,
    settings: RunSettings,
    ds_config: dict[str, Any],
    ranks: Ranks,
    *,
    before: int | None = None,
) -> MicroBatches:
    """Return the division of a step into passes, the same on all ranks; a collective.

    Args:
        model: of the run, not yet given to DeepSpeed; it is as before when this returns.
        settings: of the run.
        ds_config: filled by `fill_ds_config`.
        ranks: from `start_ranks`.
        before: the sequences of a pass of the run that is resumed, which "auto" keeps.

    Raises:
        ConfigError: on all ranks, not even a pass of one sequence fits.
    """
    first = estimated_micro_batches(settings, ds_config, ranks, model.execution, before=before)
    if first.reason in (AS_SET, AS_BEFORE):
        return first
    number = first.sequences
    if ranks.device in TRIED:
        trial = PassTrial(model, settings, ds_config, ranks)
        numbers = possible_micro_sequences(settings, ranks.world_size)
        number = next((each for each in numbers if each <= number and trial.fits(each)), 0)
    number = min(from_all_ranks(number, ranks))
    if number == 0:
        raise _refusal(settings, ranks)
    reason = first.reason if number == first.sequences else "the most that fit on every rank"
    return _division(settings, ranks, number, reason)


def estimated_micro_batches(
    settings: RunSettings,
    ds_config: dict[str, Any],
    ranks: Ranks,
    execution: ExecutionPlan,
    *,
    before: int | None = None,
) -> MicroBatches:
    """Return the division that `choose_micro_batches` tries first; on one process.

    Args:
        settings: of the run.
        ds_config: filled by `fill_ds_config`.
        ranks: that a start would have.
        execution: planned for the device.
        before: as of `choose_micro_batches`.

    Raises:
        ConfigError: nothing fits into the GPUs that a dry run is for.
    """
    if settings.batch.micro_sequences != "auto":
        number = micro_sequences(settings, ranks.world_size)
        return _division(settings, ranks, number, AS_SET)
    numbers = possible_micro_sequences(settings, ranks.world_size)
    # A dry run may be for another number of ranks, which only --elastic resumes.
    if before in numbers:
        return _division(settings, ranks, before, AS_BEFORE)
    most = USEFUL_TOKENS // settings.data.sequence_length if ranks.device == "cuda" else numbers[0]
    free, held = _free_bytes(ranks), rank_bytes(settings, ds_config, ranks.world_size)
    for number in numbers:
        needed = held + pass_bytes(settings, ds_config, execution, number)
        if number <= most and needed <= SHARE * free:
            break
    else:
        if ranks.gpu is not None:  # elsewhere a start tries one sequence
            raise _refusal(settings, ranks)
    limit = f", up to {USEFUL_TOKENS:,} tokens" if ranks.device == "cuda" else ""
    why = "the whole share" if number == numbers[0] else f"the most that fit{limit}"
    reason = f"{why}: about {size(needed)} of {size(free)} free"
    return _division(settings, ranks, number, reason)


class PassTrial(NamedTuple):
    """A forward and backward pass of a copy of the model, beside what else the rank will hold."""

    model: Objective
    settings: RunSettings
    ds_config: dict[str, Any]
    ranks: Ranks

    def fits(self, number: int) -> bool:
        """Return whether a pass of `number` sequences fits; nothing of it remains."""
        gpus = [torch.cuda.current_device()] if self.ranks.device == "cuda" else []
        fits = False
        # Ended when nothing refers to the tensors of the pass, so that they can be released.
        with contextlib.suppress(torch.OutOfMemoryError), torch.random.fork_rng(gpus):
            self._run(number)
            fits = True
        gc.collect()  # an error in a recomputed block may leave cycles that hold tensors
        if gpus:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()  # those of the run begin without the trial
        return fits

    def reserve(self) -> int:
        """Return the bytes of a margin, and of what the rank holds besides weights and gradients.

        The copy has these whole, also where ZeRO divides them.
        """
        itemsize = weight_type(self.ds_config).itemsize
        weights = sum(parameter.numel() for parameter in self.model.parameters()) * itemsize
        held = rank_bytes(self.settings, self.ds_config, self.ranks.world_size)
        return int((1 - SHARE) * _free_bytes(self.ranks)) + max(0, held - 2 * weights)

    def _run(self, number: int) -> None:
        device, dtype = self.ranks.device, weight_type(self.ds_config)
        reserved = torch.empty(self.reserve(), dtype=torch.uint8, device=device)
        # A copy of blocks that will be compiled is not compiled, and keeps a little more.
        model = copy.deepcopy(self.model).to(device, dtype)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        drops = self.settings.layer_drop.schedule != "none"
        scales = [1.0] * self.settings.model.num_layers if drops else None
        autocast = autocast_type(self.ds_config)
        batch = (tensor.to(device) for tensor in full_batch(self.settings, number))
        with torch.autocast(device, autocast, enabled=autocast is not None):
            loss = model(*batch, scales)
        loss.backward()
        del reserved


def full_batch(settings: RunSettings, number: int) -> MaskedBatch:
    """Return a batch with as many predictions as one can have, without random numbers."""
    length, vocabulary = settings.data.sequence_length, settings.model.vocabulary_size
    predictions = predictions_per_row(length, settings.data.masked_probability)
    ids_BS = torch.arange(number * length).view(number, length) % vocabulary
    positions_M = (torch.arange(number)[:, None] * length + torch.arange(predictions)).flatten()
    return MaskedBatch(ids_BS, positions_M, positions_M % vocabulary)


def _division(settings: RunSettings, ranks: Ranks, number: int, reason: str) -> MicroBatches:
    chosen = with_micro_sequences(settings, number)
    return MicroBatches(number, micro_batches_per_step(chosen, ranks.world_size), reason)


def _refusal(settings: RunSettings, ranks: Ranks) -> ConfigError:
    return ConfigError(
        f"a pass of 1 sequence of {settings.data.sequence_length} tokens does not fit into "
        f"{SHARE:.0%} of the {size(_free_bytes(ranks))} that are free; take a device with more "
        "memory, end other processes on it, set --engine.recompute_blocks true, or give "
        "--batch.micro_sequences to try anyway"
    )


def _free_bytes(ranks: Ranks) -> int:
    """Return the memory that the device of this rank has left; of ranks on a CPU, their share."""
    if ranks.gpu is not None:
        return ranks.gpu.memory_bytes
    if ranks.device == "cpu":
        return free_memory_bytes(Path("/")) // ranks.world_size
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]
