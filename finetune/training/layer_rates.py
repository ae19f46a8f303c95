"""Lower learning rates for the lower layers: layer-wise decay (Clark et al., ELECTRA, ICLR 2020).

    depth of a weight                                                    factor of the rate
    head of the task                                                     1
    what comes after the last block: its norm, BERT's pooler             decay
    block l of L, from 1                                                 decay^(L + 2 - l)
    embeddings, their norm, everything of the positions                  decay^(L + 2)

The exponents are those of the authors' code, which counts a pooler between the last block and the
head. The tables and projections
of positions count as embeddings, also where each block has one: they act from the first block on.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from finetune.training.model import AnyTaskModel
from pretrain.config.errors import ConfigError


def rate_factors(model: AnyTaskModel, decay: float) -> dict[nn.Parameter, float]:
    """Return what multiplies the learning rate of each parameter.

    Raises:
        ConfigError: the model has no blocks of their own weights, so that none is lower.
    """
    blocks = list(model.encoder.blocks)
    if decay == 1.0:
        return dict.fromkeys(model.parameters(), 1.0)
    if not blocks:
        raise ConfigError("the blocks of this model share their weights; choose layer_decay=1")
    top = len(blocks) + 2
    depths = dict.fromkeys(model.encoder.parameters(), top - 1)
    depths |= dict.fromkeys(_until(blocks[-1], model), 0)
    for number, block in enumerate(blocks, start=1):
        depths |= dict.fromkeys(block.parameters(), number)
    return {each: decay ** (top - depths.get(each, top)) for each in model.parameters()}


def _until(block: nn.Module, model: AnyTaskModel) -> list[nn.Parameter]:
    """Return the parameters on which the output of a block depends."""
    outputs: list[Any] = []
    hook = block.register_forward_hook(lambda block, inputs, output: outputs.append(output))
    parameters = list(model.parameters())
    ids_BS = torch.full((1, 8), 5, device=parameters[0].device)
    model.eval()(ids_BS, torch.tensor([8], dtype=torch.int32, device=ids_BS.device))
    hook.remove()
    states: Tensor = outputs[0] if isinstance(outputs[0], Tensor) else outputs[0][0]
    gradients = torch.autograd.grad(states.sum(), parameters, allow_unused=True)
    return [one for one, g in zip(parameters, gradients, strict=True) if g is not None]


def split_by_rate(
    groups: Sequence[dict[str, Any]], factors: dict[nn.Parameter, float]
) -> list[dict[str, Any]]:
    """Split an optimizer's groups so that each has one factor, its `learning_rate_factor`.

    Equal factors leave the groups, and the order of their parameters, as they are. Weight decay is
    not divided by the factor: it becomes as much slower as the rate, as in the authors' code.
    """
    split = []
    for group in groups:
        by_factor: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            by_factor.setdefault(factors[parameter], []).append(parameter)
        split += [
            {**group, "params": parameters, "learning_rate_factor": factor}
            for factor, parameters in by_factor.items()
        ]
    return split
