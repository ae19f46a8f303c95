"""The training engine over DeepSpeed: the only file that imports it, and the only one with ranks.

It runs the same on one CPU process and on many GPUs, under plain `python`, `torchrun` and the
`deepspeed` launcher. The training loop hands it the micro-batches of one optimizer step and a
learning rate; accumulation, loss scaling, clipping, ZeRO and Adam happen in here.
"""

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as distributed
from pydantic import ValidationError
from torch import Tensor, nn

from data_prep.shown import bare
from pretrain.checkpoints import Checkpoint, Counters, Piece
from pretrain.collectives import CountedCollectives
from pretrain.config import ConfigError, OptimizerSettings, RunSettings, explain
from pretrain.data import MaskedBatch
from pretrain.ds_config import zero_stage
from pretrain.engine_state import (
    MOMENTS,
    adam_of,
    adam_steps,
    check_shapes,
    moments_of,
    scaler_counters,
    set_moments,
    set_scaler_counters,
    shape_of,
    updated_pieces,
)
from pretrain.phases import Phases

Result = TypeVar("Result")


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step tells; reading the tensor waits for the device."""

    losses: Tensor  # one per micro-batch of this rank
    gradient_norm: Any  # before clipping; None at ZeRO stage 0 without clipping
    skipped: bool  # nothing was updated: fp16 overflow, or a gradient that is not finite
    loss_scale: float


@dataclass(frozen=True)
class Snapshot:
    """What one rank has to save, on the host."""

    tensors: dict[str, Tensor]  # "KIND/NAME" -> fp32 [size]
    pieces: dict[str, Piece]  # which elements of a parameter these are
    shapes: dict[str, list[int]]  # of all parameters
    counters: Counters


@dataclass(frozen=True)
class Spent:
    """What training steps took on this rank."""

    seconds: dict[str, float]  # by phase
    payload_bytes: dict[str, int]  # by kind of collective


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
    deepspeed = _import_deepspeed()
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


def stop_ranks() -> None:
    """Leave the process group."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def check_ds_config(ds_config: dict[str, Any]) -> None:
    """Check that DeepSpeed understands a configuration, before anything is built.

    Raises:
        ConfigError: it does not; names what it complains of.
    """
    _import_deepspeed()
    from deepspeed.runtime.config import DeepSpeedConfig

    try:
        DeepSpeedConfig(ds_config)
    except ValidationError as error:
        raise ConfigError(f"the DeepSpeed JSON: {explain(error)}") from None
    # What its own code raises, half-way, over a value of another type than it expects.
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"DeepSpeed refuses the JSON of engine.ds_config: {type(error).__name__}: "
            f"{bare(str(error))}"
        ) from None


class Engine:
    """A model, its optimizer and ZeRO behind a few methods."""

    def __init__(
        self, model: nn.Module, settings: RunSettings, ds_config: dict[str, Any], ranks: Ranks
    ) -> None:
        """Give the model to DeepSpeed.

        Args:
            model: called with a `MaskedBatch` and branch scales, returns the loss. All ranks get
                the weights that it has on the first one.
            settings: of the run; the optimizer section is read.
            ds_config: filled by `fill_ds_config`.
            ranks: from `start_ranks`.

        Raises:
            ConfigError: the optimizer is not to be had here, or ZeRO-3 with layer drop in a
                DeepSpeed whose gradient buffer cannot be cleared.
        """
        self.ranks = ranks
        self._phases = Phases(ranks.device)
        self._collectives = _count_collectives(self._phases)
        optimizer = build_optimizer(model, settings.optimizer, ranks.device)
        self._engine, self._optimizer, _, _ = _import_deepspeed().initialize(
            model=model, optimizer=optimizer, config=ds_config
        )
        # At stage 0 DeepSpeed forgets the norm by which it clips.
        self._engine.clip_fp32_gradients = self._clip_and_keep_norm
        self.device = torch.device(self._engine.device)
        self._module: nn.Module = self._engine.module
        self._zero_stage: int = zero_stage(ds_config)
        # Stage 0 copies all gradients into one buffer and back, for one rank too: 4 % of a step
        # of 12 layers on a CPU.
        self._is_alone = ranks.world_size == 1 and self._zero_stage == 0
        # ZeRO itself leaves out an update whose gradient is not finite, torch's AdamW is told to.
        # DeepSpeed's and NVIDIA's FusedAdam cannot be told without waiting for the device.
        self._guards_update = self._zero_stage == 0 and isinstance(optimizer, torch.optim.AdamW)
        clips = settings.optimizer.max_gradient_norm is not None
        self.refuses_not_finite_updates = self._zero_stage > 0 or (self._guards_update and clips)
        self._engine.enable_backward_allreduce = not self._is_alone
        fp16 = ds_config.get("fp16", {})
        self.scales_loss = bool(fp16.get("enabled", False))
        # A fixed loss scale, one that is not 0, never changes.
        is_dynamic = self.scales_loss and not fp16.get("loss_scale", 0)
        self.smallest_loss_scale = fp16.get("min_loss_scale", 1) if is_dynamic else None
        self._is_divided = self._zero_stage == 3
        self._drops_layers = settings.layer_drop.schedule != "none"
        self._clears_stale_gradients = self._drops_layers and self._is_divided
        if self._clears_stale_gradients and not hasattr(
            self._optimizer, "grad_partitions_flat_buffer"
        ):
            raise ConfigError(
                "layer drop at ZeRO stage 3 needs the gradient buffer of DeepSpeed 0.19.8, which "
                "the installed one keeps elsewhere; use stage 1 or 2"
            )

    def train_step(
        self,
        micro_batches: Iterable[tuple[MaskedBatch, Sequence[float]]],
        learning_rate: float,
    ) -> StepResult:
        """Take one optimizer step over all micro-batches of this rank and their branch scales."""
        self._engine.train()
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        skipped_before, losses = self._engine.skipped_steps, []
        on_device = ((self.on_device(batch), scales) for batch, scales in micro_batches)
        for batch, scales in self._phases.waiting_for(on_device):
            with self._phases.phase("forward"):
                loss = self._engine(*batch, self.branch_scales(scales))
            with self._phases.phase("backward"):
                self._engine.backward(loss)
            losses.append(loss.detach())
            with self._phases.phase("optimizer"):
                if self._is_alone and self._engine.is_gradient_accumulation_boundary():
                    self._fill_missing_gradients()
                self._engine.step()
        if self._clears_stale_gradients:
            # Stage 3 overwrites a gradient only when the backward pass reaches its weight, and
            # would apply the last one again to a block that was skipped.
            self._optimizer.grad_partitions_flat_buffer.zero_()
        skipped = self._engine.skipped_steps > skipped_before
        if skipped and self._is_divided:
            self._gather_small_weights()
        return StepResult(
            torch.stack(losses).float(),
            self._engine.get_global_grad_norm(),
            skipped=skipped,
            loss_scale=self.loss_scale(),
        )

    def branch_scales(self, scales: Sequence[float]) -> Sequence[float] | None:
        """Return what the model is called with: without layer drop it need not scale anything."""
        return scales if self._drops_layers else None

    def loss_scale(self) -> float:
        """Return by how much losses are multiplied; 1 where gradients cannot underflow."""
        # DeepSpeed's engine.loss_scale() is what its JSON says: 0 where the scale is dynamic.
        return float(self._optimizer.loss_scale) if self.scales_loss else 1.0

    @property
    def attention(self) -> str:
        """Return how the model computes attention, see model/attention_backends.py."""
        backend: str = self._engine.module.encoder.attention
        return backend

    def take_spent(self) -> Spent:
        """Return what the steps since the last call took; call it after `synchronize`."""
        return Spent(self._phases.take_seconds(), self._collectives.take_payload_bytes())

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MaskedBatch]) -> tuple[float, int]:
        """Return the mean held-out loss in nats at full depth, and the number of predictions.

        Every rank must bring the same number of batches; the mean is over all predictions of all
        ranks.
        """
        self._engine.eval()
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        for batch in batches:
            num_predictions = batch.num_predictions()
            loss = self._engine(*self.on_device(batch))
            totals += torch.stack(
                [loss.double() * num_predictions, totals.new_tensor(num_predictions)]
            )
        distributed.all_reduce(totals)
        return float(totals[0] / totals[1]), int(totals[1])

    def synchronize(self) -> None:
        """Wait until the device has finished, so that a clock read after this is true."""
        if self.ranks.device == "cuda":
            torch.cuda.synchronize()

    def mean_over_ranks(self, values: Tensor) -> list[float]:
        """Return the elementwise mean of a 1-D tensor over the ranks."""
        total = values.detach().double()
        distributed.all_reduce(total)
        return [float(value) for value in total / self.ranks.world_size]

    def average_over_ranks(self, tensor: Tensor) -> None:
        """Replace a tensor by its mean over the ranks."""
        distributed.all_reduce(tensor)
        tensor /= self.ranks.world_size

    def from_all_ranks(self, value: Any) -> list[Any]:
        """Return what each rank has brought; every rank must call it."""
        values: list[Any] = [None] * self.ranks.world_size
        distributed.all_gather_object(values, value)
        return values

    def whole_weights(self) -> dict[str, Tensor]:
        """Return the weights as the forward pass reads them; every rank must call it.

        They are copies on the host: on the device there may be no room for them.
        """
        weights = {}
        for name, parameter in self._module.named_parameters():
            weights[name] = self._whole(parameter).detach().to("cpu", copy=True)
        return weights

    def has_finite_weights(self) -> bool:
        """Return whether every weight, on all ranks, is a finite number; waits for the device."""
        parameters: Iterable[Any] = self._module.parameters()
        if self._is_divided:
            parameters = (parameter.ds_tensor for parameter in parameters)
        finite = [torch.isfinite(weight.detach()).all() for weight in parameters]
        bad = (~torch.stack(finite)).any().float().to(self.device)
        distributed.all_reduce(bad)
        return not float(bad)

    def forward_context(self) -> contextlib.AbstractContextManager[Any]:
        """Return the autocast under which the model is called."""
        if not self._engine.torch_autocast_enabled():
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self._engine.torch_autocast_dtype())

    def on_device(self, batch: MaskedBatch) -> MaskedBatch:
        """Return the batch on the device of this rank."""
        return MaskedBatch(*(tensor.to(self.device, non_blocking=True) for tensor in batch))

    def snapshot(self) -> Snapshot:
        """Copy to the host what this rank has to save; training can go on when this returns."""
        adam, world_size = adam_of(self._optimizer), self.ranks.world_size
        updated = list(updated_pieces(self._module, self._optimizer, rank=self.ranks.rank))
        if self._zero_stage == 0:  # every rank has everything, and saves its share
            updated = updated[self.ranks.rank :: world_size]
        tensors = {}
        for part in updated:
            sources = {"weight": part.holder, **moments_of(adam, part.holder)}
            for kind, source in sources.items():
                tensors[f"{kind}/{part.name}"] = part.of(source).float().to("cpu", copy=True)
        return Snapshot(
            tensors,
            {part.name: part.piece for part in updated},
            {name: list(shape_of(p)) for name, p in self._module.named_parameters()},
            Counters(adam_steps=adam_steps(adam), loss_scaler=scaler_counters(self._optimizer)),
        )

    @torch.no_grad()
    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint, of whatever number of ranks and ZeRO stage.

        Learning rate, betas and weight decay are not read from it: they are the recipe's.

        Raises:
            CheckpointError: it is damaged, or of another model.
        """
        check_shapes(checkpoint, self._module)
        self._restore_computing_weights(checkpoint)
        adam, counters = adam_of(self._optimizer), checkpoint.content.engine
        updated = list(updated_pieces(self._module, self._optimizer, rank=self.ranks.rank))
        for holder in {id(part.holder): part.holder for part in updated}.values():
            zeros = {kind: torch.zeros_like(holder) for kind in MOMENTS}
            set_moments(adam, holder, zeros, counters.adam_steps)
        for part in updated:
            targets = {"weight": part.holder, **moments_of(adam, part.holder)}
            for kind, target in targets.items():
                part.of(target).copy_(checkpoint.read(kind, part.name, part.piece))
        set_scaler_counters(self._optimizer, counters.loss_scaler)
        distributed.barrier()

    def _restore_computing_weights(self, checkpoint: Checkpoint) -> None:
        """Set the weights with which the model computes, in whatever type."""
        if not self._is_divided:
            for name, parameter in self._module.named_parameters():
                parameter.copy_(checkpoint.whole(name))
            return
        if self._optimizer.persistent_parameters:
            self._optimizer.persistent_parameters[0].partition(
                self._optimizer.persistent_parameters
            )
        divided: Iterable[tuple[str, Any]] = self._module.named_parameters()
        for name, parameter in divided:
            part = parameter.ds_tensor.detach().view(-1)
            start = self.ranks.rank * part.numel()
            size = min(part.numel(), parameter.ds_numel - start)  # the rest of it is padding
            if size > 0:
                part[:size].copy_(checkpoint.read("weight", name, Piece(start, size)))
        self._gather_small_weights()

    def _gather_small_weights(self) -> None:
        """Bring back what ZeRO-3 keeps whole on each rank, as it does after an update.

        DeepSpeed 0.19.8 forgets it after a step without one, and the next backward pass may then
        end in a tracing error.
        """
        if self._optimizer.persistent_parameters:
            self._optimizer.persistent_parameters[0].all_gather(
                self._optimizer.persistent_parameters
            )

    def _fill_missing_gradients(self) -> None:
        """Give a skipped block a gradient of zero, as every exchange of gradients does."""
        for parameter in self._module.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def _clip_and_keep_norm(self) -> None:
        norm = nn.utils.clip_grad_norm_(self._module.parameters(), self._engine.gradient_clipping())
        self._engine._global_grad_norm = norm
        if self._guards_update:
            # As torch's GradScaler does: the update is left out on the device.
            self._optimizer.found_inf = (~torch.isfinite(norm)).float()

    def _whole(self, parameter: Any) -> Tensor:
        """Return a weight with all its elements; at ZeRO stage 3 each rank has a part of them.

        DeepSpeed's own GatheredParameters, used between two steps, disturbs the order in which it
        then expects to fetch the weights: the next step may end in a tracing error.
        """
        if not self._is_divided:
            return parameter  # type: ignore[no-any-return]
        part = parameter.ds_tensor.detach().view(-1)
        parts = [torch.empty_like(part) for _ in range(self.ranks.world_size)]
        distributed.all_gather(parts, part)
        return torch.cat(parts)[: parameter.ds_numel].view(parameter.ds_shape)


def installed_operations() -> dict[str, bool]:
    """Return DeepSpeed's operations, and whether each was compiled when it was installed."""
    _import_deepspeed()
    from deepspeed.git_version_info import installed_ops

    return dict(installed_ops)


def build_optimizer(
    model: nn.Module, settings: OptimizerSettings, device: Literal["cpu", "cuda"]
) -> torch.optim.Optimizer:
    """Build AdamW over two groups: with weight decay, and without (biases and norms).

    Raises:
        ConfigError: the chosen implementation is not to be had on this machine.
    """
    groups = parameter_groups(model, settings)
    values: dict[str, Any] = {"lr": 0.0, "betas": settings.betas, "eps": settings.epsilon}
    kind = settings.kind
    if kind == "auto":
        kind = "deepspeed" if device == "cuda" else "torch"
    if kind == "torch":
        return torch.optim.AdamW(groups, fused=True, **values)
    if device == "cpu":
        raise ConfigError(f"optimizer.kind={kind!r} needs a CUDA device; on a CPU use torch")
    if kind == "apex":
        return _apex_adam()(groups, adam_w_mode=True, **values)  # type: ignore[no-any-return]
    from deepspeed.ops.adam import FusedAdam

    return FusedAdam(groups, adam_w_mode=True, **values)  # type: ignore[no-any-return]


def parameter_groups(model: nn.Module, settings: OptimizerSettings) -> list[dict[str, Any]]:
    """Split the parameters by weight decay.

    Vectors (biases, norms, the output bias) do not decay, matrices and tables do, as in BERT;
    `decay_everything` decays all, as the TUPE authors' trainer does.
    """
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for parameter in model.parameters():
        decays = settings.decay_everything or parameter.ndim > 1
        (decayed if decays else undecayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _apex_adam() -> Any:
    try:
        from apex.optimizers import FusedAdam
    except ImportError:
        raise ConfigError(
            "optimizer.kind='apex', but NVIDIA apex is not installed (the package named apex on "
            "the package index is another one); build it, or use optimizer.kind=deepspeed"
        ) from None
    return FusedAdam


def _count_collectives(phases: Phases) -> CountedCollectives:
    """Put the counter between DeepSpeed and its communication backend."""
    _import_deepspeed()
    from deepspeed.comm import comm

    # Every collective of DeepSpeed's looks this global up and goes through it.
    comm.cdb = counted = CountedCollectives(comm.cdb, phases)
    return counted


def _import_deepspeed() -> Any:
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else it prints what it guessed
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # DeepSpeed 0.19.8 calls collectives by names that torch 2.13 renames, once a step.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    # On a CPU it would compile a C++ operation that only inference uses: a minute, a compiler,
    # and a lock file on which later starts hang if the build is killed.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed
