"""Replays the micro-batches of one step with hooks on every tensor.

Norms per layer, the largest logit and the first tensor that is not finite cost too much for every
step. They are computed after an anomaly only, on a plain copy of the model: a backward pass outside
of the engine would fill ZeRO's buffers. With the same weights, rows, masks, dropped blocks and
dropout the losses are the same, bit for bit on a CPU; `Replay` holds them as a check.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.data.batches import MaskedBatch
from pretrain.model.blocks import Block
from pretrain.model.heads import MaskedLanguageModelHead
from pretrain.model.objective_base import Objective

LOGIT_ROWS = 256  # computed at once


@dataclass
class Replay:
    """Observations on the micro-batches of one rank; NaN does not count in the largest values."""

    losses: list[float] = field(default_factory=list)
    not_finite_weights: list[str] = field(default_factory=list)
    first_not_finite_forward: str | None = None  # in the order of execution
    first_not_finite_backward: str | None = None  # in the order of the backward pass
    not_finite_gradients: list[str] = field(default_factory=list)  # of parameters, the same order
    largest_logit: float = 0.0  # over the vocabulary, absolute; of a masked language model
    largest_activations: dict[str, float] = field(default_factory=dict)  # per block, absolute

    def first_not_finite(self) -> str | None:
        """Return the first weight, else tensor of the forward, else of the backward pass."""
        if self.not_finite_weights:
            return f"weight {self.not_finite_weights[0]}"
        return self.first_not_finite_forward or self.first_not_finite_backward


def replay_step(
    model: Objective,
    micro_batches: Sequence[tuple[MaskedBatch, Sequence[float] | None]],
    *,
    loss_scale: float,
    forward_context: Callable[[], AbstractContextManager[Any]],
) -> tuple[Replay, dict[str, Tensor]]:
    """Run forward and backward passes with hooks.

    Dropout uses torch's generator, which the caller seeds.

    Args:
        model: a copy with the weights in question; hooks stay on it.
        micro_batches: of this rank, on the device of the model, and their branch scales.
        loss_scale: of fp16; gradients are multiplied by it as in the step, and divided again.
        forward_context: autocast, where the run uses it.

    Returns:
        The observations, and the gradient of the mean loss of this rank, in fp32.
    """
    probe = _Probe(model)
    model.train()
    sums = {name: torch.zeros_like(p, dtype=torch.float32) for name, p in model.named_parameters()}
    for batch, scales in micro_batches:
        with forward_context():
            loss = model(*batch, scales)
        probe.found.losses.append(float(loss.detach()))
        (loss / len(micro_batches) * loss_scale).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                sums[name] += parameter.grad.float() / loss_scale
                parameter.grad = None
    return probe.found, sums


def norms_per_layer(gradients: dict[str, Tensor]) -> dict[str, float]:
    """Return the norm of the gradient of each block, and of each part around the blocks."""
    squares: dict[str, float] = {}
    for name, gradient in gradients.items():
        layer = layer_of(name)
        squares[layer] = squares.get(layer, 0.0) + float(gradient.double().square().sum())
    return {layer: square**0.5 for layer, square in squares.items()}


def layer_of(name: str) -> str:
    """Return the layer of a parameter: "encoder.blocks.3", "encoder.positions", "head"."""
    parts = name.split(".")
    if parts[0] == "head":
        return "head"
    return ".".join(parts[:3] if parts[1] == "blocks" else parts[:2])


class _Probe:
    """Hooks on each module and parameter of a model, and their observations."""

    def __init__(self, model: Objective) -> None:
        self.found = Replay()
        for name, parameter in model.named_parameters():
            if not _is_finite(parameter):
                self.found.not_finite_weights.append(name)
            parameter.register_hook(self._gradient_hook(name))  # type: ignore[no-untyped-call]
        for name, module in model.named_modules():
            if name:
                module.register_forward_pre_hook(self._input_hook(name))
                module.register_forward_hook(self._output_hook(name))
        for name, module in model.named_modules():
            if isinstance(module, Block):
                module.register_forward_hook(self._size_hook(name))
            if isinstance(module, MaskedLanguageModelHead):
                module.norm.register_forward_hook(self._logit_hook(model, module))

    def _input_hook(self, name: str) -> Callable[..., None]:
        """Find what becomes infinite between two modules, such as attention scores."""

        def check(module: nn.Module, inputs: Any) -> None:
            del module
            for tensor in _tensors(inputs):
                self._check_forward(f"input of {name}", tensor)

        return check

    def _output_hook(self, name: str) -> Callable[..., None]:
        def check(module: nn.Module, inputs: Any, output: Any) -> None:
            del module, inputs
            for tensor in _tensors(output):
                self._check_forward(f"output of {name}", tensor)
                if tensor.requires_grad:
                    hook = self._check_backward(f"gradient of the output of {name}")
                    tensor.register_hook(hook)  # type: ignore[no-untyped-call]

        return check

    def _size_hook(self, name: str) -> Callable[..., None]:
        def check(module: nn.Module, inputs: Any, output: Tensor) -> None:
            del module, inputs
            sizes = self.found.largest_activations
            sizes[name] = _larger(sizes.get(name, 0.0), output)

        return check

    def _logit_hook(self, model: Objective, head: MaskedLanguageModelHead) -> Callable[..., None]:
        """Compute the logits, of which the loss never holds all."""

        def check(module: nn.Module, inputs: Any, hidden_MD: Tensor) -> None:
            del module, inputs
            weight_VD, bias_V = model.encoder.token_embeddings.weight, head.output_bias
            with torch.no_grad(), torch.autocast(hidden_MD.device.type, enabled=False):
                for part_RD in torch.split(hidden_MD, LOGIT_ROWS):
                    logits_RV = (part_RD @ weight_VD.to(part_RD.dtype).t()).float() + bias_V.float()
                    self._check_forward("logits", logits_RV)
                    self.found.largest_logit = _larger(self.found.largest_logit, logits_RV)

        return check

    def _check_forward(self, place: str, tensor: Tensor) -> None:
        if self.found.first_not_finite_forward is None and not _is_finite(tensor):
            batch = len(self.found.losses) + 1
            self.found.first_not_finite_forward = f"{place} (micro-batch {batch})"

    def _check_backward(self, place: str) -> Callable[[Tensor], None]:
        def check(gradient: Tensor) -> None:
            if self.found.first_not_finite_backward is None and not _is_finite(gradient):
                # The loss of this micro-batch is in the list already.
                batch = len(self.found.losses)
                self.found.first_not_finite_backward = f"{place} (micro-batch {batch})"

        return check

    def _gradient_hook(self, name: str) -> Callable[[Tensor], None]:
        check_first = self._check_backward(f"gradient of {name}")

        def check(gradient: Tensor) -> None:
            check_first(gradient)
            names = self.found.not_finite_gradients
            if name not in names and not _is_finite(gradient):
                names.append(name)

        return check


def _tensors(values: Any) -> list[Tensor]:
    """Return the floating-point tensors among arguments, or in tuples of them."""
    if isinstance(values, Tensor):
        return [values] if values.is_floating_point() else []
    if isinstance(values, tuple | list):
        return [tensor for value in values for tensor in _tensors(value)]
    return []


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor.detach()).all())


def _larger(size: float, tensor: Tensor) -> float:
    """Return the larger of a size and the largest absolute element, without NaN."""
    largest = tensor.detach().abs().float().nan_to_num(nan=0.0, posinf=float("inf"))
    return max(size, float(largest.max()))
