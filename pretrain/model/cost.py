"""The cost of a model: parameters by group, and floating-point operations of a training step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pretrain.config.settings import DEFAULT_OBJECTIVE, ModelSettings
from pretrain.model.encoder import build_position_encoding
from pretrain.model.objectives import Objective, objective_named
from pretrain.model.shapes import shapes_only

# A backward pass multiplies twice per forward multiplication: by weights and by activations.
PASSES = 3


@dataclass(frozen=True)
class TrainingCost:
    """Matrix-multiplication FLOPs of forward and backward together (2 per multiply-add).

    Norms, activations, softmax and the optimizer are left out, as is usual. The head, and the last
    block that runs after its attention, are computed and counted at the predicted positions only.
    """

    model: ModelSettings
    objective: type[Objective]
    sequence_length: int
    attention_per_row: int  # of a block: queries, keys, values, scores and mixed values
    mapping_per_position: int  # of a block: all products after its attention
    positions_per_pass: int

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
        head = self.objective.head_multiply_adds(
            self.model, rows=rows, length=self.sequence_length, predictions=predictions
        )
        blocks, last = math.fsum(kept), 1 - math.prod(1 - probability for probability in kept)
        mapped = rows * self.sequence_length * (blocks - last) + predictions * last
        return (
            rows * blocks * self.attention_per_row
            + mapped * self.mapping_per_position
            + PASSES * 2 * head
            + ranks * self.positions_per_pass
        )


def training_cost(
    model: ModelSettings, sequence_length: int, objective: str = DEFAULT_OBJECTIVE
) -> TrainingCost:
    """Return the cost of rows of `sequence_length` tokens."""
    width, length = model.width, sequence_length
    with shapes_only():
        positions = build_position_encoding(model)
    attention = length * (3 * width * width + 2 * length * width)
    attention += positions.row_multiply_adds(length)
    mapping = width * width + 2 * width * model.feedforward_width
    return TrainingCost(
        model=model,
        objective=objective_named(objective),
        sequence_length=length,
        attention_per_row=PASSES * 2 * attention,
        mapping_per_position=PASSES * 2 * mapping,
        positions_per_pass=PASSES * 2 * positions.multiply_adds(length),
    )


def parameters_by_group(model: ModelSettings, objective: str = DEFAULT_OBJECTIVE) -> dict[str, int]:
    """Return the number of parameters of each part; tied weights count once.

    Raises:
        ConfigError: the model has a part that does not exist.
    """
    with shapes_only():
        network = objective_named(objective)(model)
    encoder = network.encoder
    parts = {
        "token embeddings": encoder.token_embeddings,
        "positions": encoder.positions,
        "blocks": encoder.blocks,
        "head": network.head,
    }
    groups = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
    total = sum(parameter.numel() for parameter in network.parameters())
    return {**groups, "other norms": total - sum(groups.values()), "total": total}
