"""Where DeepSpeed keeps fp32 weights and the optimizer's state, at every ZeRO stage.

Stage 0 updates the parameters themselves. Stages 1 and 2 update one flat tensor per parameter
group, of which each rank has a range, so that a parameter may lie on several ranks or on one.
Stage 3 gives every rank an equal range of every parameter. Here all of these are lists of pieces.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pretrain.checkpoint.format import Checkpoint, CheckpointError, Piece
from pretrain.config.errors import ConfigError

SCALER_COUNTERS = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")


class Updated(NamedTuple):
    """Elements of a parameter that the optimizer of this rank updates, or of a frozen one."""

    name: str
    piece: Piece  # of the flattened parameter
    holder: Tensor  # fp32, the optimizer's own parameter
    offset: int  # of the piece in the flattened holder

    def of(self, tensor: Tensor) -> Tensor:
        """Return the view of the piece in the holder, or in a state tensor of its shape."""
        return tensor.detach().view(-1)[self.offset : self.offset + self.piece.size]


def updated_pieces(module: nn.Module, optimizer: Any, *, rank: int) -> Iterator[Updated]:
    """Iterate over what the optimizer of this rank updates."""
    parameter: Any  # DeepSpeed adds to it
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "ds_id"):  # stage 3
            holder, offset, size = parameter.ds_tensor, 0, parameter.ds_tensor.numel()
            if parameter.requires_grad:  # what is frozen is not in the groups
                group, offset, size = optimizer.grad_position[optimizer.get_param_id(parameter)]
                holder = optimizer.fp32_partitioned_groups_flat[group]
            start = rank * size
            left = shape_of(parameter).numel() - start  # the last ranks may have padding only
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
    """Return the shape of a parameter, also while ZeRO-3 has released its content."""
    return torch.Size(getattr(parameter, "ds_shape", parameter.shape))


def check_state(checkpoint: Checkpoint, names: Sequence[str]) -> None:
    """Check that a checkpoint holds the state tensors that the optimizer of this run keeps.

    Raises:
        CheckpointError: it holds those of another optimizer; names both.
    """
    for name, stored in checkpoint.content.optimizer_state.items():
        if set(stored) != set(names):
            before, now = (" and ".join(each) or "nothing" for each in (stored, names))
            raise CheckpointError(
                f"{checkpoint.folder} is of another optimizer: of {name} it holds {before}, and "
                f"this run's optimizer keeps {now}; resume with the optimizer.kind that wrote it, "
                "or start a new run with --initial_weights"
            )


def inner_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer inside of ZeRO's, or at stage 0 the optimizer itself."""
    return getattr(optimizer, "optimizer", optimizer)  # type: ignore[no-any-return]


def num_updates(optimizer: torch.optim.Optimizer) -> int:
    """Return how many updates the optimizer has made; 0 if it does not count them."""
    counts = [state["step"] for state in optimizer.state.values() if "step" in state]
    counts += [group["step"] for group in optimizer.param_groups if "step" in group]
    return int(max(map(float, counts), default=0))


def state_of(
    optimizer: torch.optim.Optimizer, part: Updated, names: Sequence[str]
) -> dict[str, Tensor]:
    """Return the state of a piece: views of the optimizer's, zeros before its first step.

    Raises:
        ConfigError: a checkpoint would not hold all of it.
    """
    state = optimizer.state.get(part.holder, {})
    kept = {n: v.shape for n, v in state.items() if isinstance(v, Tensor) and n != "step"}
    if state and kept != dict.fromkeys(names, part.holder.shape):
        raise ConfigError(
            f"a checkpoint holds {' and '.join(names) or 'nothing'} of this optimizer, which keeps "
            f"{' and '.join(kept) or 'nothing'}: in pretrain/engine/optimizers.py name all its "
            "state tensors, each of the shape of its parameter"
        )
    return {
        name: part.of(state[name]) if name in state else torch.zeros(part.piece.size)
        for name in names
    }


def reset_state(optimizer: torch.optim.Optimizer, holder: Tensor, names: Sequence[str]) -> None:
    """Set the state tensors of an optimizer's parameter to zero, in place where they exist."""
    state = optimizer.state[holder]
    for name in names:
        if name in state:
            state[name].zero_()
        else:
            state[name] = torch.zeros_like(holder)


def scaler_counters(optimizer: Any) -> dict[str, float]:
    """Return the counters of a dynamic loss scaler; empty without one."""
    scaler = getattr(optimizer, "loss_scaler", None)
    return {} if scaler is None else {n: v for n, v in vars(scaler).items() if n in SCALER_COUNTERS}


def set_scaler_counters(optimizer: Any, counters: dict[str, float]) -> None:
    """Set the counters of the loss scaler, if it is dynamic and they are of one that was."""
    known = scaler_counters(optimizer)
    if len(known) == len(SCALER_COUNTERS) == len(counters):
        vars(optimizer.loss_scaler).update(counters)
