"""The training engine over DeepSpeed.

It runs the same on one CPU process and on many GPUs, under plain `python`, `torchrun` and the
`deepspeed` launcher. The training loop passes the micro-batches of one optimizer step and a
learning rate; accumulation, loss scaling, clipping, ZeRO and the optimizer are behind it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.profiler import record_function

from pretrain.checkpoint.format import Checkpoint, EngineCounters, Snapshot
from pretrain.config.ds_config import zero_stage
from pretrain.config.settings import RunSettings
from pretrain.data.batches import MaskedBatch
from pretrain.distributed.deepspeed_library import import_deepspeed
from pretrain.distributed.ranks import Ranks
from pretrain.engine.computing_weights import ComputingWeights
from pretrain.engine.micro_batches import MicroBatches
from pretrain.engine.optimizer_state import (
    check_state,
    inner_optimizer,
    num_updates,
    reset_state,
    scaler_counters,
    set_scaler_counters,
    shape_of,
    state_of,
    updated_pieces,
)
from pretrain.engine.optimizers import checked_optimizer
from pretrain.model.objectives.held_out import Evaluation, HeldOutSums
from pretrain.model.objectives.objective import Objective

Item = TypeVar("Item")


@dataclass(frozen=True)
class StepResult:
    """Result of one optimizer step; reading the tensor waits for the device."""

    losses: Tensor  # one per micro-batch of this rank
    gradient_norm: Any  # before clipping, inf if skipped; None at ZeRO stage 0 without clipping
    skipped: bool  # no update, from ZeRO stage 1 on: fp16 overflow, or a gradient not finite
    loss_scale: float
    # By name, of an objective whose loss is a sum: total and number [2] of this rank, in fp64.
    parts: dict[str, Tensor] = field(default_factory=dict)


class Engine:
    """A model, its optimizer and ZeRO behind a few methods."""

    def __init__(
        self,
        model: Objective,
        settings: RunSettings,
        ds_config: dict[str, Any],
        ranks: Ranks,
        micro_batches: MicroBatches,
    ) -> None:
        """Give the model to DeepSpeed.

        All ranks get the weights that it has on the first one. `ds_config` is filled by
        `fill_ds_config`, with the numbers of `micro_batches`, which `train_step` gets.

        Raises:
            ConfigError: the optimizer is not available here.
        """
        self.ranks, self.execution = ranks, model.execution
        self.ds_config, self.micro_batches = ds_config, micro_batches
        self._kind = checked_optimizer(settings.optimizer, ranks.device, ds_config)
        self._engine, self._optimizer, _, _ = import_deepspeed().initialize(
            model=model,
            optimizer=self._kind.build(model, settings.optimizer),
            # Its own list knows no optimizer of a user; `zero_stages` of the kind is ours.
            config={**ds_config, "zero_allow_untested_optimizer": True},
        )
        # At stage 0 DeepSpeed does not keep the norm by which it clips.
        self._engine.clip_fp32_gradients = self._clip_and_keep_norm
        self.device = torch.device(self._engine.device)
        self._module: Objective = self._engine.module
        self.zero_stage: int = zero_stage(ds_config)
        # Stage 0 copies all gradients into one buffer and back, for one rank too: 4 % of a step
        # of 12 layers on a CPU.
        self._is_alone = ranks.world_size == 1 and self.zero_stage == 0
        # ZeRO itself skips an update whose gradient is not finite; at stage 0 the optimizer must.
        # DeepSpeed's and NVIDIA's FusedAdam have no input for it.
        self._guards_update = self.zero_stage == 0 and self._kind.takes_gradient_scale
        clips = settings.optimizer.max_gradient_norm is not None
        self.refuses_not_finite_updates = self.zero_stage > 0 or (self._guards_update and clips)
        self._engine.enable_backward_allreduce = not self._is_alone
        fp16 = ds_config.get("fp16", {})
        self.scales_loss = bool(fp16.get("enabled", False))
        # A fixed loss scale, one that is not 0, never changes.
        is_dynamic = self.scales_loss and not fp16.get("loss_scale", 0)
        self.smallest_loss_scale = fp16.get("min_loss_scale", 1) if is_dynamic else None
        if self.scales_loss:  # DeepSpeed 0.19.8 would divide gradients by the next step's scale
            self._optimizer._update_scale = lambda has_overflow: None
        are_divided = self.zero_stage == 3
        self.weights = ComputingWeights(
            self._module, self._optimizer, ranks, are_divided=are_divided
        )
        self._drops_layers = settings.layer_drop.schedule != "none"
        # Stage 3 would apply the gradient of an earlier step again to a block that is skipped: only
        # what a backward pass reaches is overwritten.
        self._clears_gradients = self._drops_layers and are_divided

    def describe(self) -> str:
        """Return how the run is executed, in a line."""
        return (
            f"{self.execution.describe()}; ZeRO stage {self.zero_stage}; "
            f"micro-batches {self.micro_batches.describe()}"
        )

    def train_step(
        self,
        micro_batches: Iterable[tuple[MaskedBatch, Sequence[float]]],
        learning_rate: float,
    ) -> StepResult:
        """Take one optimizer step over all micro-batches of this rank and their branch scales."""
        self._engine.train()
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate * group["learning_rate_factor"]
        skipped_before, losses = self._engine.skipped_steps, []
        parts: dict[str, Tensor] = {}
        on_device = ((self.on_device(batch), scales) for batch, scales in micro_batches)
        for batch, scales in _waiting_for(on_device):
            with record_function("phase/forward"):
                loss = self._engine(*batch, scales if self._drops_layers else None)
            with record_function("phase/backward"):
                self._engine.backward(loss)
            losses.append(loss.detach())
            for name, part in self._module.parts.items():
                parts[name] = parts[name] + part.sums() if name in parts else part.sums()
            with record_function("phase/optimizer"):
                if self._is_alone and self._engine.is_gradient_accumulation_boundary():
                    # A skipped block gets a gradient of zero, as by every exchange of gradients.
                    for parameter in self._module.parameters():
                        if parameter.requires_grad and parameter.grad is None:
                            parameter.grad = torch.zeros_like(parameter)
                self._engine.step()
        if self._clears_gradients:
            self._optimizer.grad_partitions_flat_buffer.zero_()  # as DeepSpeed 0.19.8 calls it
        skipped = self._engine.skipped_steps > skipped_before
        if self.scales_loss:
            self._optimizer.loss_scaler.update_scale(skipped)
        if skipped:
            self.weights.gather_small()
        return StepResult(
            torch.stack(losses).float(),
            self._engine.get_global_grad_norm(),
            skipped=skipped,
            loss_scale=self.loss_scale(),
            parts=parts,
        )

    def loss_scale(self) -> float:
        """Return the factor of the losses; 1 where gradients cannot underflow."""
        # DeepSpeed's engine.loss_scale() is what its JSON says: 0 where the scale is dynamic.
        return float(self._optimizer.loss_scale) if self.scales_loss else 1.0

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MaskedBatch]) -> Evaluation:
        """Return the mean held-out loss in nats at full depth, and its parts.

        Every rank must pass the same number of batches; the mean is over all predictions of all
        ranks.
        """
        self._engine.eval()
        sums = HeldOutSums()
        for batch in batches:
            loss = self._engine(*self.on_device(batch))
            sums.add(self._module, loss, batch.num_predictions())
        table = sums.table()
        distributed.all_reduce(table)
        return sums.evaluation(table)

    def synchronize(self) -> None:
        """Wait until the device has finished; only then is the clock meaningful."""
        if self.ranks.device == "cuda":
            torch.cuda.synchronize()

    def mean_over_ranks(self, values: Tensor) -> list[float]:
        """Return the elementwise mean of a 1-D tensor over the ranks."""
        total = values.detach().double()
        distributed.all_reduce(total)
        return [float(value) for value in total / self.ranks.world_size]

    def on_device(self, batch: MaskedBatch) -> MaskedBatch:
        """Return the batch on the device of this rank."""
        return MaskedBatch(*(tensor.to(self.device, non_blocking=True) for tensor in batch))

    def snapshot(self) -> Snapshot:
        """Copy to the host what this rank has to save; training can continue when this returns."""
        inner, world_size = inner_optimizer(self._optimizer), self.ranks.world_size
        updated = list(updated_pieces(self._module, self._optimizer, rank=self.ranks.rank))
        if self.zero_stage == 0:  # every rank has everything, and saves its share
            updated = updated[self.ranks.rank :: world_size]
        elif self.ranks.rank:  # what is frozen is whole on every rank
            updated = [part for part in updated if not isinstance(part.holder, nn.Parameter)]
        tensors = {}
        for part in updated:
            state = state_of(inner, part, self._kind.state)
            sources = {"weight": part.of(part.holder), **state}
            for kind, source in sources.items():
                tensors[f"{kind}/{part.name}"] = source.float().to("cpu", copy=True)
        return Snapshot(
            tensors,
            {part.name: part.piece for part in updated},
            {name: list(shape_of(p)) for name, p in self._module.named_parameters()},
            self._kind.state,
            EngineCounters(
                adam_steps=num_updates(inner), loss_scaler=scaler_counters(self._optimizer)
            ),
        )

    @torch.no_grad()
    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of any number of ranks and ZeRO stage.

        Learning rate, betas and weight decay are not read from it: they are the recipe's.

        Raises:
            CheckpointError: it is damaged, or of another optimizer.
        """
        check_state(checkpoint, self._kind.state)
        self.weights.restore(checkpoint)
        inner, counters = inner_optimizer(self._optimizer), checkpoint.content.engine
        updated = list(updated_pieces(self._module, self._optimizer, rank=self.ranks.rank))
        for part in {id(part.holder): part for part in updated}.values():
            reset_state(inner, part.holder, self._kind.state)
            self._kind.set_updates(inner, part.holder, counters.adam_steps)
        for part in updated:
            state = state_of(inner, part, self._kind.state)
            targets = {"weight": part.of(part.holder), **state}
            for kind, target in targets.items():
                target.copy_(checkpoint.read(kind, part.name, part.piece))
        set_scaler_counters(self._optimizer, counters.loss_scaler)
        distributed.barrier()

    def _clip_and_keep_norm(self) -> None:
        parameters, largest = list(self._module.parameters()), self._engine.gradient_clipping()
        if not self._guards_update:
            self._engine._global_grad_norm = nn.utils.clip_grad_norm_(parameters, largest)
            return
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        self._engine._global_grad_norm = norm
        # What torch's GradScaler sets: the update divides by the one, instead of one more pass over
        # all gradients, and is left out, on the device, if the other is not zero.
        self._optimizer.grad_scale = (norm / largest).clamp(min=1)
        self._optimizer.found_inf = (~torch.isfinite(norm)).float()


def _waiting_for(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items; a profiler shows the time to get them as phase/data."""
    iterator = iter(items)
    while True:
        with record_function("phase/data"):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
