"""The reference of the engine: a training loop of nothing but PyTorch."""

from typing import NamedTuple

import torch

from pretrain.engine.parameter_groups import parameter_groups
from pretrain.schedules.learning_rate import learning_rate_at


class LoopResult(NamedTuple):
    """The result of a training run."""

    losses: list
    norms: list  # of the gradients, before clipping
    weights: dict  # name -> tensor


def plain_loop(model, settings, micro_batches, *, places, update=None):
    """Train a model for all steps of its settings, with accumulation and clipping.

    The model is in training mode. Given a step from 0, `micro_batches` iterates over its batches
    and their branch scales; each is drawn right before its forward pass. A step has so many
    `places`, of all ranks. Given the learning rate, `update` updates the weights by their
    gradients; default: AdamW's.
    """
    update = update or adamw_update(model, settings.optimizer)
    losses, norms = [], []
    for step in range(settings.steps):
        # A skipped block has a zero gradient, not none: ZeRO lets momentum and decay act on it.
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        total = 0.0
        for batch, scales in micro_batches(step):
            loss = model(*batch, scales)
            (loss / places).backward()
            total += loss.item()
        largest = settings.optimizer.max_gradient_norm
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), largest)))
        update(learning_rate_at(step, settings.learning_rate, settings.steps))
        losses.append(total / places)
    return LoopResult(losses, norms, {n: p.detach().cpu() for n, p in model.named_parameters()})


def adamw_update(model, settings):
    """Return the update of torch's AdamW."""
    optimizer = torch.optim.AdamW(
        parameter_groups(model, settings), lr=1.0, betas=settings.betas, eps=settings.epsilon
    )

    def update(learning_rate):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()

    return update
