"""Replaced-token detection: a generator fills masks in, a discriminator finds what is not original.

Clark, Luong, Le, Manning, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than
Generators", ICLR 2020; shapes and weights of the losses as in github.com/google-research/electra.
Shapes as in positions.py; M = predicted positions, G = width of the generator.
"""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data_prep.masking import IGNORED
from pretrain.config.settings import REPLACED_TOKEN_DETECTION, ElectraSettings, ModelSettings
from pretrain.model.encoder import BlockStack, Encoder, Scales, build_position_encoding, initialise
from pretrain.model.execution_plan import PLAIN, ExecutionPlan
from pretrain.model.heads import DiscriminatorHead, MaskedLanguageModelHead
from pretrain.model.objectives.objective import Network, Objective, Part
from pretrain.model.objectives.sampling import sampled_words, uniform_of_rows
from pretrain.model.positions import BertAbsolute

# Of the losses, as in the paper.
GENERATOR_WEIGHT, DISCRIMINATOR_WEIGHT = 1.0, 50.0


def generator_settings(model: ModelSettings, electra: ElectraSettings) -> ModelSettings:
    """Return the shape of the generator of this discriminator.

    Its heads are as wide as the discriminator's, and its width is that of whole heads, one at
    least. With heads of 64, as in the published models, these are max(1, width // 64).
    """
    heads = max(1, round(electra.generator_width * model.num_heads))
    width = heads * model.head_width
    return model.model_copy(
        update={"width": width, "num_heads": heads, "feedforward_width": 4 * width}
    )


class Generator(BlockStack):
    """A small masked language model on the discriminator's embeddings, which it projects.

    Words, positions that are added to them, and their norm are the discriminator's, so they are an
    input here; positions that act in the attention are its own, of its own width.
    """

    def __init__(
        self, model: ModelSettings, discriminator: ModelSettings, execution: ExecutionPlan
    ) -> None:
        super().__init__(model, execution)
        is_as_wide = model.width == discriminator.width
        self.projection = None if is_as_wide else nn.Linear(discriminator.width, model.width)
        self.positions = build_position_encoding(model)
        if isinstance(self.positions, BertAbsolute):
            del self.positions.position_embeddings  # its input has the discriminator's
        self.add_blocks(model)
        self.head = MaskedLanguageModelHead(
            discriminator.width,
            discriminator.vocabulary_size,
            discriminator.layer_norm_epsilon,
            input_width=model.width,
        )

    def forward(self, x_BSD: Tensor, positions_M: Tensor, branch_scales: Scales = None) -> Tensor:
        """Return hidden_MD, which the head compares with every token embedding.

        Args:
            x_BSD: embedded tokens, of the discriminator's width.
            positions_M: see `Objective.forward`.
            branch_scales: see `Encoder.forward`.
        """
        x_BSG = x_BSD if self.projection is None else self.projection(x_BSD)
        x_MG = self.run_blocks(x_BSG, branch_scales, None, positions_M)
        return self.head.transform(x_MG)


class ReplacedTokenDetection(Objective):
    """ELECTRA. `encoder` and `head` are the discriminator; the loss is a weighted sum of two.

    Layer drop draws the same blocks of both networks. Differs from the published code in that the
    draws of a row are a function of its masks, see sampling.py.
    """

    held_out_loss = REPLACED_TOKEN_DETECTION
    head: DiscriminatorHead

    def __init__(
        self, model: ModelSettings, electra: ElectraSettings, execution: ExecutionPlan = PLAIN
    ) -> None:
        super().__init__(model, execution)
        self.head = DiscriminatorHead(model.width)
        self.generator = Generator(generator_settings(model, electra), model, execution)
        initialise(self, model.initializer_range)

    @classmethod
    def build(
        cls, model: ModelSettings, electra: ElectraSettings | None, execution: ExecutionPlan
    ) -> Self:
        """Build both networks."""
        assert electra is not None, "give the settings of the generator"
        return cls(model, electra, execution)

    def forward(
        self, ids_BS: Tensor, positions_M: Tensor, labels_M: Tensor, branch_scales: Scales = None
    ) -> Tensor:
        """Return the weighted sum of both mean losses; arguments as in `Objective.forward`.

        The discriminator's is a mean over all tokens of the rows in which something is predicted:
        evaluations fill their last batch with rows that do not count.
        """
        head = self.generator.head
        hidden_MD = self.generator(self.encoder.embed(ids_BS), positions_M, branch_scales)
        masked_loss = self.summed_loss(head, hidden_MD, labels_M)
        uniform_M = uniform_of_rows(ids_BS, positions_M)
        table_VD = self.encoder.token_embeddings.weight
        words_M = sampled_words(head, hidden_MD, table_VD, uniform_M)
        filled_BS, replaced_BS = filled_in(ids_BS, positions_M, labels_M, words_M)
        logits_BS = self.head(self.encoder(filled_BS, branch_scales))
        rows_M, is_label_M = positions_M // ids_BS.shape[1], labels_M.ne(IGNORED).long()
        counted_B1 = torch.zeros_like(ids_BS[:, 0]).index_add(0, rows_M, is_label_M)[:, None] > 0
        found_loss = F.binary_cross_entropy_with_logits(
            logits_BS,
            replaced_BS.to(logits_BS.dtype),
            counted_B1.to(logits_BS.dtype),
            reduction="sum",
        )
        num_predictions = is_label_M.sum()
        num_tokens = counted_B1.sum() * ids_BS.shape[1]
        self.parts = {
            "generator_loss": Part(masked_loss.detach(), num_predictions, GENERATOR_WEIGHT),
            "discriminator_loss": Part(found_loss.detach(), num_tokens, DISCRIMINATOR_WEIGHT),
            **detection_scores(logits_BS.detach() > 0, replaced_BS, counted_B1),
        }
        return GENERATOR_WEIGHT * masked_loss / num_predictions.clamp(
            min=1
        ) + DISCRIMINATOR_WEIGHT * found_loss / num_tokens.clamp(min=1)

    @torch.no_grad()
    def set_output_bias(self, bias_V: Tensor) -> None:
        """Set the bias of the generator's head."""
        self.generator.head.output_bias.copy_(bias_V)

    @classmethod
    def networks(cls, model: ModelSettings, electra: ElectraSettings | None) -> list[Network]:
        """Return the discriminator and the generator."""
        assert electra is not None, "give the settings of the generator"

        def outside(
            generator: ModelSettings, *, rows: float, length: int, predictions: float
        ) -> float:
            dense, logits = model.width * generator.width, model.width * model.vocabulary_size
            projection = 0 if generator.width == model.width else rows * length * dense
            # The logits are computed a second time for the draws, without a backward pass: a third
            # of what a product costs in training.
            return projection + predictions * (dense + logits + logits / 3)

        return [
            Network(model, cls.head_multiply_adds, predicts_words=False),
            Network(generator_settings(model, electra), outside, predicts_words=True),
        ]

    @staticmethod
    def head_multiply_adds(
        model: ModelSettings, *, rows: float, length: int, predictions: float
    ) -> float:
        """Count the discriminator's head, at every token."""
        return rows * length * (model.width * model.width + model.width)


class Discriminator(nn.Module):
    """What is kept of ELECTRA: an encoder, and for every token the logit that it was replaced.

    Its weights have the names that they have in `ReplacedTokenDetection`.
    """

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        self.encoder = Encoder(model)
        self.head = DiscriminatorHead(model.width)
        initialise(self, model.initializer_range)

    def logits(self, ids_BS: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Return logits_BS; ids from `lengths_B` on are padding of any value."""
        logits_BS: Tensor = self.head(self.encoder(ids_BS, lengths_B=lengths_B))
        return logits_BS


def filled_in(
    ids_BS: Tensor, positions_M: Tensor, labels_M: Tensor, words_M: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the discriminator's input, and which of its tokens are not the original ones.

    A position with the label IGNORED keeps its token.
    """
    flat = ids_BS.flatten()
    is_drawn_M = labels_M != IGNORED
    filled = flat.scatter(0, positions_M, torch.where(is_drawn_M, words_M, flat[positions_M]))
    replaced = torch.zeros_like(flat, dtype=torch.bool).scatter(
        0, positions_M, is_drawn_M & (words_M != labels_M)
    )
    return filled.view_as(ids_BS), replaced.view_as(ids_BS)


def detection_scores(found_BS: Tensor, replaced_BS: Tensor, counted_B1: Tensor) -> dict[str, Part]:
    """Return what describes the discriminator's answers; they have no weight in the loss."""
    counted_BS = counted_B1.expand_as(found_BS)
    found_BS, replaced_BS = found_BS & counted_BS, replaced_BS & counted_BS
    tokens, right = counted_BS.sum(), (found_BS & replaced_BS).sum()
    return {
        "replaced_share": Part(replaced_BS.sum(), tokens),
        "discriminator_accuracy": Part(((found_BS == replaced_BS) & counted_BS).sum(), tokens),
        "discriminator_precision": Part(right, found_BS.sum()),
        "discriminator_recall": Part(right, replaced_BS.sum()),
    }
