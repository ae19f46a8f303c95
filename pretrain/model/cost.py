"""The cost of a model: parameters by group, and floating-point operations of a training step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pretrain.config.settings import DEFAULT_OBJECTIVE, ElectraSettings, ModelSettings
from pretrain.model.blocks import Block
from pretrain.model.encoder import build_position_encoding
from pretrain.model.objectives.catalog import build_objective, objective_of
from pretrain.model.objectives.objective import Network
from pretrain.model.position_encoding import PositionSettings
from pretrain.model.shapes import shapes_only
from pretrain.model.transformers_encoder import measured

# A backward pass multiplies twice per forward multiplication: by weights and by activations.
PASSES = 3
POSITIONS = ("positions", "position_embeddings")  # names of modules, of ours and of transformers


@dataclass(frozen=True)
class NetworkCost:
    """The cost of one network of an objective; see `TrainingCost`."""

    network: Network
    sequence_length: int
    attention_per_row: int  # of a block: queries, keys, values, scores and mixed values
    mapping_per_position: int  # of a block: all products after its attention
    positions_per_pass: int


@dataclass(frozen=True)
class TrainingCost:
    """Matrix-multiplication FLOPs of forward and backward together (2 per multiply-add).

    Norms, activations, softmax and the optimizer are left out, as is usual. The head, and the last
    block that runs after its attention, are computed and counted at the predicted positions only,
    but in a discriminator, which answers at every position.
    """

    networks: list[NetworkCost]

    def of_pass(
        self, *, rows: float, predictions: float, kept: Sequence[float], ranks: int
    ) -> float:
        """Return the FLOPs of one micro-batch of all ranks.

        Args:
            rows: of all ranks.
            predictions: predicted positions in them.
            kept: the probability of each block to run; 0 or 1 once the blocks are drawn.
            ranks: each computes the position terms.
        """
        found = []
        for cost in self.networks:
            network, length = cost.network, cost.sequence_length
            outside = network.outside(
                network.model, rows=rows, length=length, predictions=predictions
            )
            layers = network.model.num_layers  # a network with other blocks has no layer drop
            shares = kept if len(kept) == layers else [1.0] * layers
            blocks = math.fsum(shares)
            last = 1 - math.prod(1 - share for share in shares)
            wanted = predictions if network.predicts_words else rows * length
            mapped = rows * length * (blocks - last) + wanted * last
            found.append(
                rows * blocks * cost.attention_per_row
                + mapped * cost.mapping_per_position
                + PASSES * 2 * outside
                + ranks * cost.positions_per_pass
            )
        return math.fsum(found)


def training_cost(
    model: ModelSettings,
    sequence_length: int,
    objective: str = DEFAULT_OBJECTIVE,
    electra: ElectraSettings | None = None,
) -> TrainingCost:
    """Return the cost of rows of `sequence_length` tokens."""
    networks = objective_of(model, objective).networks(model, electra)
    return TrainingCost([_network_cost(each, sequence_length) for each in networks])


def _network_cost(network: Network, length: int) -> NetworkCost:
    model = network.model
    if model.transformers is not None:
        found = measured(model, length)
        of_row, of_pass = (round(PASSES * 2 * n) for n in (found.block_per_row, found.per_pass))
        return NetworkCost(network, length, of_row, 0, of_pass)
    with shapes_only():
        positions, x_1SD = build_position_encoding(model), torch.empty(1, length, model.width)
        block = Block(PositionSettings(**model.model_dump()), positions.score_scale)
        terms = positions.of_layer(positions.terms(length, device="meta"), 0, length)
        of_none, of_one = (
            _flops(block, x_1SD, terms, positions_M=torch.arange(count)) for count in (0, 1)
        )
        of_terms = _flops(positions.terms, length, device="meta")
    return NetworkCost(network, length, of_none, of_one - of_none, of_terms)


def _flops(run: Callable[..., object], *inputs: Any, **named: Any) -> int:
    """Return the FLOPs of the products in a call, and in its backward pass."""
    with FlopCounterMode(display=False) as counter:
        run(*inputs, **named)
    return PASSES * int(counter.get_total_flops())


def parameters_by_group(
    model: ModelSettings, objective: str = DEFAULT_OBJECTIVE, electra: ElectraSettings | None = None
) -> dict[str, int]:
    """Return the number of parameters of each part; tied weights count once.

    Raises:
        ConfigError: the model has a part that does not exist.
    """
    with shapes_only():
        network = build_objective(model, objective, electra)
    encoder = network.encoder
    parts: dict[str, Any] = {
        "token embeddings": [encoder.token_embeddings],
        "positions": [part for name, part in encoder.named_modules() if name.endswith(POSITIONS)],
        "blocks": encoder.blocks,
        "head": [network.head],
    }
    # What an objective has besides encoder and head, such as a generator.
    parts |= {
        name: [part] for name, part in network.named_children() if name not in ("encoder", "head")
    }
    groups, counted = dict[str, int](), set[nn.Parameter]()
    for name, modules in parts.items():
        own = {parameter for part in modules for parameter in part.parameters()} - counted
        groups[name] = sum(parameter.numel() for parameter in own)
        counted |= own
    total = sum(parameter.numel() for parameter in network.parameters())
    return {**groups, "other": total - sum(groups.values()), "total": total}
