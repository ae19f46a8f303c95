"""The encoder and its masked-language-model loss. Shapes as in positions.py and heads.py."""

from collections.abc import Sequence

from torch import Tensor, nn

from pretrain.config import ModelSettings
from pretrain.model.attention import position_terms
from pretrain.model.blocks import Block
from pretrain.model.heads import MaskedLanguageModelHead, masked_language_model_loss
from pretrain.model.initialise import initialise
from pretrain.model.positions import build_position_encoding


class Encoder(nn.Module):
    """Token ids to hidden states: embeddings, norm, blocks, and a last norm if norm = "pre"."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        self.token_embeddings = nn.Embedding(model.vocabulary_size, model.width)
        self.positions = build_position_encoding(model)
        self.embedding_norm = nn.LayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.dropout = nn.Dropout(model.dropout)
        scale = self.positions.score_scale
        self.blocks = nn.ModuleList(Block(model, scale) for _ in range(model.num_layers))
        epsilon = model.layer_norm_epsilon
        self.final_norm = nn.LayerNorm(model.width, epsilon) if model.norm == "pre" else None

    def forward(self, ids_BS: Tensor, branch_scales: Sequence[float] | None = None) -> Tensor:
        """Return the hidden states x_BSD.

        Args:
            ids_BS: token ids, int64; every row is full (no padding).
            branch_scales: one number per block: 0.0 skips it, other values scale its branches.
                None runs every block as it is (evaluation).
        """
        x_BSD: Tensor = self.positions.add_to_embeddings(self.token_embeddings(ids_BS))
        x_BSD = self.dropout(self.embedding_norm(x_BSD))
        terms = position_terms(self.positions, ids_BS.shape[1])
        for index, block in enumerate(self.blocks):
            scale = 1.0 if branch_scales is None else branch_scales[index]
            if scale:
                x_BSD = block(x_BSD, terms, scale)
        return x_BSD if self.final_norm is None else self.final_norm(x_BSD)


class MaskedLanguageModel(nn.Module):
    """Encoder and head; calling it returns the loss, as DeepSpeed's engine wants it."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        self.encoder = Encoder(model)
        self.head = MaskedLanguageModelHead(model)
        initialise(self, model.initializer_range)

    def forward(
        self,
        ids_BS: Tensor,
        positions_M: Tensor,
        labels_M: Tensor,
        branch_scales: Sequence[float] | None = None,
    ) -> Tensor:
        """Return the mean loss over the predicted positions; arguments as in `logits`."""
        logits_MV = self.logits(ids_BS, positions_M, branch_scales)
        return masked_language_model_loss(logits_MV, labels_M)

    def logits(
        self, ids_BS: Tensor, positions_M: Tensor, branch_scales: Sequence[float] | None = None
    ) -> Tensor:
        """Return logits_MV at the flat positions `row * S + column` given in positions_M."""
        x_BSD = self.encoder(ids_BS, branch_scales)
        x_MD = x_BSD.flatten(0, 1).index_select(0, positions_M)
        logits_MV: Tensor = self.head(x_MD, self.encoder.token_embeddings.weight)
        return logits_MV
