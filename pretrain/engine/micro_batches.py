"""Chooses how many sequences a rank takes in a pass: `batch.micro_sequences = "auto"`.

The number divides a rank's share of the global batch. A GPU tries one forward and backward pass,
before DeepSpeed gets the model, beside a block of memory as large as what the rank will hold
besides; where memory runs out, the next smaller number is tried. A CPU, where too large a pass ends
the process, takes what fits by the estimate of footprint.py, and so does a dry run. All ranks take
the least number that any of them found.
"""

import copy
import gc
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from data_prep.masking import predictions_per_sequence
from pretrain.config.batch import micro_batches_per_step, micro_sequences, with_micro_sequences
from pretrain.config.ds_config import autocast_type, weight_type
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings
from pretrain.data.batches import MaskedBatch
from pretrain.distributed.hardware import free_memory_bytes
from pretrain.distributed.ranks import Ranks, from_all_ranks
from pretrain.engine.footprint import checkpoint_bytes, needed_bytes, rank_bytes, size
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.objectives.objective import Objective

# Of the free memory. The rest is for what is not counted: buffers of NCCL and cuBLAS, gaps between
# tensors, and the copy of a gradient while it is reduced.
SHARE = 0.85

# More tokens in a pass gain nothing on a GPU. With these, a product of width 768 has 3072 tiles of
# 128 x 128 for the 132 multiprocessors of an H100, so that the last ones leave 3 % idle; and even a
# norm moves 0.3 GB, which takes 15 times as long as to launch it.
USEFUL_TOKENS = 65_536

# The devices on which a pass is tried: they raise an error when memory runs out.
TRIED = ("cuda",)


@dataclass(frozen=True)
class MicroBatches:
    """How the sequences of an optimizer step are divided into passes."""

    sequences: int  # of a rank in a pass
    per_step: int  # of a rank, accumulated

    def describe(self) -> str:
        """Return a line for the user."""
        return f"{self.per_step} x {self.sequences} sequences a step and rank"

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
    settings: RunSettings,
    ds_config: dict[str, Any],
    ranks: Ranks,
    execution: ExecutionPlan,
    *,
    model: Objective | None = None,
    before: int | None = None,
) -> MicroBatches:
    """Return the division of a step into passes.

    The model, not yet given to DeepSpeed, is as before when this returns; this is then a
    collective, and the same on all ranks. Without it, in a dry run, the estimate decides. "auto"
    keeps what a run that is resumed had `before`.

    Raises:
        ConfigError: on all ranks, not even a pass of one sequence fits.
    """
    most, number = micro_sequences(settings, ranks.world_size), None
    numbers = [n for n in range(most, 0, -1) if most % n == 0]  # so that the batch is exact
    if settings.batch.micro_sequences != "auto":
        number = most
    elif before in numbers:  # a dry run may be for ranks that only --elastic resumes
        number = before
    if number is None:
        if ranks.device != "cpu":
            useful = max(1, USEFUL_TOKENS // settings.data.sequence_length)
            numbers = [n for n in numbers if n <= useful]
        if model is not None and ranks.device in TRIED:
            run = model, settings, ds_config, ranks
            number = next((n for n in numbers if pass_fits(n, *run)), 0)
        else:
            plan, room = (settings, ds_config, ranks.world_size, execution), free_bytes(ranks)
            if ranks.device == "cpu":  # a copy, while it is saved beside the next steps
                room -= checkpoint_bytes(settings) // ranks.world_size
            # One sequence is tried by a start here, and cannot be on other GPUs.
            least = numbers[-1] if ranks.gpu is None else 0
            fitting = (n for n in numbers if needed_bytes(*plan, n) <= SHARE * room)
            number = next(fitting, least)
    if model is not None:
        number = min(from_all_ranks(number, ranks))
    if number == 0:
        raise ConfigError(
            f"a pass of 1 sequence of {settings.data.sequence_length} tokens does not fit into "
            f"{SHARE:.0%} of the {size(free_bytes(ranks))} that are free; take a device with more "
            "memory, end other processes on it, set --engine.recompute_blocks true, or give "
            "--batch.micro_sequences to try anyway"
        )
    chosen = with_micro_sequences(settings, number)
    return MicroBatches(number, micro_batches_per_step(chosen, ranks.world_size))


def pass_fits(
    number: int, model: Objective, settings: RunSettings, ds_config: dict[str, Any], ranks: Ranks
) -> bool:
    """Return whether a pass of `number` sequences fits beside what else the rank will hold.

    The pass is one of a copy of the model, at full depth, and nothing of it remains.
    """
    gpus = [torch.cuda.current_device()] if ranks.device == "cuda" else []
    fits = False
    try:
        with torch.random.fork_rng(gpus):
            _try_pass(number, model, settings, ds_config, ranks)
        fits = True
    except RuntimeError as error:  # torch's, or that of a library which allocates by itself
        if not re.search("out of memory|ALLOC_FAILED", str(error), re.IGNORECASE):
            raise
    # Nothing refers to the tensors of the pass any more: they can be released.
    gc.collect()  # an error in a recomputed block may leave cycles that hold tensors
    if gpus:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()  # those of the run begin without the trial
    return fits


def free_bytes(ranks: Ranks) -> int:
    """Return the memory that the device of this rank has left; of ranks on a CPU, their share."""
    if ranks.gpu is not None:
        return ranks.gpu.memory_bytes
    if ranks.device == "cpu":
        return free_memory_bytes() // ranks.world_size
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def _try_pass(
    number: int, model: Objective, settings: RunSettings, ds_config: dict[str, Any], ranks: Ranks
) -> None:
    dtype, autocast = weight_type(ds_config), autocast_type(ds_config)
    weights = sum(parameter.numel() for parameter in model.parameters()) * dtype.itemsize
    # The copy has weights and gradients whole, also where ZeRO divides them.
    besides = max(0, rank_bytes(settings, ds_config, ranks.world_size) - 2 * weights)
    reserve = int((1 - SHARE) * free_bytes(ranks)) + besides
    reserved = torch.empty(reserve, dtype=torch.uint8, device=ranks.device)
    # A copy of blocks that will be compiled is not compiled, and keeps a little more.
    model = copy.deepcopy(model).to(ranks.device, dtype)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    drops = settings.layer_drop.schedule != "none"
    scales = [1.0] * settings.model.num_layers if drops else None
    batch = (tensor.to(ranks.device) for tensor in RandomBatches(settings, number)[0])
    with torch.autocast(ranks.device, autocast, enabled=autocast is not None):
        loss = model(*batch, scales)
    loss.backward()
    del reserved


class RandomBatches(Dataset[MaskedBatch]):
    """Random ids in the shape of real batches; n gives batch n, without torch's own generator."""

    def __init__(self, settings: RunSettings, micro_sequences: int) -> None:
        self.shape = (micro_sequences, settings.data.sequence_length)
        self.vocabulary_size = settings.model.vocabulary_size
        self.per_row = predictions_per_sequence(self.shape[1], settings.data.masked_probability)

    def __getitem__(self, index: int) -> MaskedBatch:
        """Return random ids, of which as many are predicted in each row as of a real one."""
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(self.vocabulary_size, self.shape, generator=generator)
        columns = torch.rand(self.shape, generator=generator).argsort(dim=1)[:, : self.per_row]
        row_starts = torch.arange(self.shape[0])[:, None] * self.shape[1]
        positions = (columns.sort(dim=1).values + row_starts).flatten()
        return MaskedBatch(ids, positions, ids.flatten()[positions])
