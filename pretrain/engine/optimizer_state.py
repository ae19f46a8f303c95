"""Where DeepSpeed keeps fp32 weights and Adam's moments, at every ZeRO stage.

Stage 0 updates the parameters themselves. Stages 1 and 2 update one flat tensor per parameter
group, of which each rank has a range, so that a parameter may lie on several ranks or on one.
Stage 3 gives every rank an equal range of every parameter. Here all of it is a list of pieces.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pretrain.checkpoint.format import KINDS, Checkpoint, CheckpointError, Piece

MOMENTS = KINDS[1:]
SCALER_COUNTERS = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")


class Updated(NamedTuple):
    """Elements of a parameter that the optimizer of this rank updates."""

    name: str
    piece: Piece  # of the flattened parameter
    holder: Tensor  # fp32, the optimizer's own parameter
    offset: int  # of the piece in the flattened holder

    def of(self, tensor: Tensor) -> Tensor:
        """Return the view of the piece in the holder, or in a moment of its shape."""
        return tensor.detach().view(-1)[self.offset : self.offset + self.piece.size]


def updated_pieces(module: nn.Module, optimizer: Any, *, rank: int) -> Iterator[Updated]:
    """Iterate over what the optimizer of this rank updates.

    Args:
        module: as DeepSpeed holds it.
        optimizer: what `deepspeed.initialize` returned.
        rank: of this process.
    """
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "ds_id"):  # stage 3
            group, offset, size = optimizer.grad_position[optimizer.get_param_id(parameter)]
            start = rank * size
            left = shape_of(parameter).numel() - start  # the last ranks may have padding only
            holder = optimizer.fp32_partitioned_groups_flat[group]
            if left > 0:
                yield Updated(name, Piece(start, min(size, left)), holder, offset)
        elif hasattr(parameter, "_hp_mapping"):  # stages 1 and 2
            mapping = parameter._hp_mapping
            if mapping is not None:
                here, there = mapping.lp_fragment_address, mapping.hp_fragment_address
                holder = optimizer.single_partition_of_fp32_groups[mapping.param_group_index]
                yield Updated(name, Piece(here.start, here.numel), holder, there.start)
        else:
            yield Updated(name, Piece(0, parameter.numel()), parameter, 0)


def shape_of(parameter: nn.Parameter) -> torch.Size:
    """Return the shape of a parameter, also while ZeRO-3 has taken its content away."""
    return torch.Size(getattr(parameter, "ds_shape", parameter.shape))


def check_shapes(checkpoint: Checkpoint, module: nn.Module) -> None:
    """Check that a checkpoint is of this model.

    Raises:
        CheckpointError: it is not; names a parameter.
    """
    shapes = {name: list(shape_of(p)) for name, p in module.named_parameters()}
    stored = checkpoint.content.shapes
    different = [n for n in sorted(shapes | stored) if shapes.get(n) != stored.get(n)]
    if different:
        name = different[0]
        raise CheckpointError(
            f"{checkpoint.folder} is of another model: {name} has the shape {stored.get(name)} "
            f"there and {shapes.get(name)} here"
        )


def adam_of(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer inside of ZeRO's, or at stage 0 the optimizer itself."""
    return getattr(optimizer, "optimizer", optimizer)  # type: ignore[no-any-return]


def adam_steps(adam: torch.optim.Optimizer) -> int:
    """Return how many updates Adam has made: its bias correction depends on it."""
    counts = [state["step"] for state in adam.state.values() if "step" in state]
    counts += [group["step"] for group in adam.param_groups if "step" in group]
    return int(max(map(float, counts), default=0))


def moments_of(adam: torch.optim.Optimizer, part: Updated) -> dict[str, Tensor]:
    """Return both moments of a piece: views of the optimizer's, zeros before its first step."""
    state = adam.state.get(part.holder, {})
    return {
        kind: part.of(state[kind]) if kind in state else torch.zeros(part.piece.size)
        for kind in MOMENTS
    }


def reset_moments(adam: torch.optim.Optimizer, holder: Tensor, steps: int) -> None:
    """Give an optimizer's parameter moments of zero, where they are, and the number of updates."""
    state = adam.state[holder]
    for kind in MOMENTS:
        if kind in state:
            state[kind].zero_()
        else:
            state[kind] = torch.zeros_like(holder)
    if isinstance(adam, torch.optim.AdamW):
        state["step"] = torch.tensor(float(steps), device=holder.device)
        return
    state["step"] = steps  # DeepSpeed's FusedAdam counts here
    for group in adam.param_groups:
        group["step"] = steps  # and apex's here


def scaler_counters(optimizer: Any) -> dict[str, float]:
    """Return what a dynamic loss scaler counts; empty without one."""
    scaler = getattr(optimizer, "loss_scaler", None)
    return {} if scaler is None else {n: v for n, v in vars(scaler).items() if n in SCALER_COUNTERS}


def set_scaler_counters(optimizer: Any, counters: dict[str, float]) -> None:
    """Let the loss scaler, if there is one that counts, go on where another stopped."""
    known = scaler_counters(optimizer)
    if len(known) == len(SCALER_COUNTERS) == len(counters):
        vars(optimizer.loss_scaler).update(counters)
