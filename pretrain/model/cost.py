"""What a model costs: parameters by group, and floating-point operations of a training step."""

from dataclasses import dataclass

import torch

from pretrain.config import ModelSettings
from pretrain.model.encoder import MaskedLanguageModel
from pretrain.model.positions import build_position_encoding

# A backward pass multiplies twice per forward multiplication: by weights and by activations.
PASSES = 3


@dataclass(frozen=True)
class TrainingCost:
    """Matrix-multiplication FLOPs of forward and backward together (2 per multiply-add).

    Norms, activations, softmax and the optimizer are left out, as is usual. The head counts the
    predicted positions only, since only they are computed.
    """

    block_per_row: int
    head_per_prediction: int
    positions_per_pass: int

    def of_pass(self, *, rows: float, predictions: float, blocks: float, ranks: int) -> float:
        """Return the FLOPs of one micro-batch of all ranks when so many blocks run."""
        return (
            rows * blocks * self.block_per_row
            + predictions * self.head_per_prediction
            + ranks * self.positions_per_pass
        )


def training_cost(model: ModelSettings, sequence_length: int) -> TrainingCost:
    """Return the cost of rows of `sequence_length` tokens."""
    width, length = model.width, sequence_length
    weights = 4 * width * width + 2 * width * model.feedforward_width
    scores_and_mixing = 2 * length * width
    head = width * width + width * model.vocabulary_size
    with torch.device("meta"):
        positions = build_position_encoding(model)
    return TrainingCost(
        block_per_row=PASSES * 2 * length * (weights + scores_and_mixing),
        head_per_prediction=PASSES * 2 * head,
        positions_per_pass=PASSES * 2 * positions.multiply_adds(length),
    )


def parameters_by_group(model: ModelSettings) -> dict[str, int]:
    """Return the number of parameters of each part; tied weights count once."""
    with torch.device("meta"):
        network = MaskedLanguageModel(model)
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
