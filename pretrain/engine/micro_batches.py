"""Chooses how many sequences a rank takes in a pass: `batch.micro_sequences = "auto"`.

On a GPU it is the largest number that fits, among the divisors of a rank's share of the global
batch. A prediction (model/memory.py) chooses what is tried first: one forward and backward pass of
the model of the run, at full depth, with every prediction counted, before DeepSpeed gets the model.
Where that runs out of memory, or takes more than its share on any rank, the next smaller number is
tried. Nothing of the trial remains: weights, gradients and random numbers are those of before.

On a CPU it is the largest number that fits by prediction, which is nearly always the whole share.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.masking import predictions_per_row
from pretrain.config.batch import (
    micro_batches_per_step,
    micro_sequences,
    possible_micro_sequences,
    with_micro_sequences,
)
from pretrain.config.ds_config import autocast_type, compute_type, weight_type
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings
from pretrain.distributed.ranks import Ranks, from_all_ranks
from pretrain.engine.footprint import bucket_bytes, optimizer_state_bytes, size
from pretrain.engine.memory_trial import (
    TRIED,
    GpuMemory,
    Precision,
    full_batch,
    measured_pass,
)
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.memory import PassMemory
from pretrain.model.objectives.objective import Objective
from pretrain.profiling.free_memory import free_memory_bytes

# Of the free memory. The rest is for what is not counted: buffers of NCCL and cuBLAS, gaps between
# tensors, and the copy of a gradient while it is reduced.
SHARE = 0.85

# More tokens in a pass gain nothing on a GPU. With these, a product of width 768 has 3072 tiles of
# 128 x 128 for the 132 multiprocessors of an H100, so that the last ones leave 3 % idle; and even a
# norm moves 0.3 GB, which takes 15 times as long as to launch it.
USEFUL_TOKENS = 65_536


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


class _Candidates:
    """The numbers that a run may have on a device, the largest first, and what they would take."""

    def __init__(
        self,
        settings: RunSettings,
        ds_config: dict[str, Any],
        ranks: Ranks,
        execution: ExecutionPlan,
        free_bytes: int,
    ) -> None:
        length, dtype = settings.data.sequence_length, compute_type(ds_config)
        self.settings, self.ranks, self.free_bytes = settings, ranks, free_bytes
        self.weight_type = weight_type(ds_config)
        self.predictions = predictions_per_row(length, settings.data.masked_probability)
        engine = (settings, ds_config, ranks.world_size)
        self.engine_bytes = optimizer_state_bytes(*engine) + bucket_bytes(*engine)
        self._memory = PassMemory(
            settings.model,
            execution,
            length,
            self.predictions,
            weight_bytes=self.weight_type.itemsize,
            product_bytes=dtype.itemsize,
            device=ranks.device,
            objective=settings.objective,
            electra=settings.electra,
        )
        numbers = possible_micro_sequences(settings, ranks.world_size)
        self._most = numbers[0]
        if ranks.device == "cuda":
            numbers = [each for each in numbers if each * length <= USEFUL_TOKENS] or numbers[-1:]
        self._numbers = numbers

    def to_try(self) -> list[int]:
        """Return those that fit by prediction; the smallest one if none does."""
        fitting = [each for each in self._numbers if self.fits(self.predicted(each))]
        return fitting or self._numbers[-1:]

    def predicted(self, number: int) -> int:
        """Return the bytes of passes of so many rows, of the optimizer and of buckets."""
        return self._memory.of_rows(number) + self.engine_bytes

    def fits(self, num_bytes: float) -> bool:
        """Return whether so much is within the share of the free memory."""
        return num_bytes <= SHARE * self.free_bytes

    def chosen(self, number: int, measured: str) -> MicroBatches:
        """Return the choice with its reason.

        Args:
            number: of sequences.
            measured: what was measured, in words.
        """
        why = "the most that fit"
        if number == self._most:
            why = "the whole share"
        elif number == self._numbers[0]:
            why = f"more than {USEFUL_TOKENS:,} tokens a pass gain nothing"
        predicted = f"{size(self.predicted(number))} predicted"
        reason = f"{why}: {predicted}{measured}, of {size(self.free_bytes)} free"
        per_step = micro_batches_per_step(
            with_micro_sequences(self.settings, number), self.ranks.world_size
        )
        drop = self.settings.layer_drop
        if drop.schedule != "none" and drop.draw_per == "micro_batch" and per_step > 1:
            reason += (
                f"; layer drop draws for each of the {per_step}, on another machine perhaps for "
                "others: layer_drop.draw_per=step does not depend on it"
            )
        return MicroBatches(number, per_step, reason)

    def refusal(self, number: int) -> ConfigError:
        """Return the error that not even `number` sequences fit."""
        place, fix = "are free on the device", "end other processes on it"
        if self.ranks.gpu is not None:  # described, not here
            place, fix = "each of these GPUs has", "describe GPUs of more memory"
        return ConfigError(
            f"a pass of {number} sequence(s) of {self.settings.data.sequence_length} tokens does "
            f"not fit into {SHARE:.0%} of the {size(self.free_bytes)} that {place} "
            f"({size(self.predicted(number))} were predicted); {fix}, set "
            "--engine.recompute_blocks true, or give --batch.micro_sequences to try regardless"
        )


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
        ConfigError: on all ranks, not even the smallest number fits.
    """
    known = _known(settings, ranks, before)
    if known is not None:
        return known
    gpu = TRIED.get(ranks.device)
    free = min(from_all_ranks(_free_bytes(ranks, gpu), ranks))
    candidates = _Candidates(settings, ds_config, ranks, model.execution, free)
    if gpu is None:
        return candidates.chosen(candidates.to_try()[0], "")
    precision = Precision(candidates.weight_type, autocast_type(ds_config))
    for number in candidates.to_try():
        batch = full_batch(settings, number, candidates.predictions)
        scales = None
        if settings.layer_drop.schedule != "none":
            scales = [1.0] * settings.model.num_layers
        taken = measured_pass(model, batch, scales, precision, ranks.device, gpu)
        by_rank = from_all_ranks(taken, ranks)
        needed = max(by_rank) + candidates.engine_bytes
        if candidates.fits(needed):
            return candidates.chosen(number, f", {size(needed)} measured")
    raise candidates.refusal(number)


def predicted_micro_batches(
    settings: RunSettings,
    ds_config: dict[str, Any],
    ranks: Ranks,
    execution: ExecutionPlan,
    *,
    before: int | None = None,
) -> MicroBatches:
    """Return the division that `choose_micro_batches` would try first; on one process.

    Args:
        settings: of the run.
        ds_config: filled by `fill_ds_config`.
        ranks: that a start would have.
        execution: planned for the device.
        before: as of `choose_micro_batches`.

    Raises:
        ConfigError: nothing fits into the GPUs that a dry run is for.
    """
    known = _known(settings, ranks, before)
    if known is not None:
        return known
    gpu = TRIED.get(ranks.device)
    if ranks.gpu is not None:
        free = ranks.gpu.memory_bytes
    else:
        free = _free_bytes(ranks, gpu) if gpu is None else gpu.least_free_bytes(ranks.world_size)
    candidates = _Candidates(settings, ds_config, ranks, execution, free)
    number = candidates.to_try()[0]
    if ranks.gpu is not None and not candidates.fits(candidates.predicted(number)):
        raise candidates.refusal(number)  # elsewhere a start tries it
    return candidates.chosen(number, "")


def _known(settings: RunSettings, ranks: Ranks, before: int | None) -> MicroBatches | None:
    """Return the division that is not to be chosen."""
    reason = "as set"
    if settings.batch.micro_sequences == "auto":
        # A dry run may be for another number of ranks, which only --elastic resumes.
        if before not in possible_micro_sequences(settings, ranks.world_size):
            return None
        settings = with_micro_sequences(settings, before)
        reason = "as before the resume"
    number = micro_sequences(settings, ranks.world_size)
    return MicroBatches(number, micro_batches_per_step(settings, ranks.world_size), reason)


def _free_bytes(ranks: Ranks, gpu: GpuMemory | None) -> int:
    if gpu is not None:
        return gpu.free_bytes()
    return free_memory_bytes(Path("/")) // ranks.world_size  # which share the host
