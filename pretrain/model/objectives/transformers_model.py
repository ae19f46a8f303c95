"""BERT's objective on a model of transformers, as it is. Shapes as in positions.py."""

import torch
import torch.nn.functional as F
from torch import Tensor

from data_prep.files.quoting import first_line
from data_prep.masking import IGNORED
from pretrain.config.errors import ConfigError
from pretrain.config.settings import DEFAULT_OBJECTIVE, ModelSettings
from pretrain.model.attention import at_positions
from pretrain.model.encoder import Scales
from pretrain.model.execution_plan import PLAIN, ExecutionPlan
from pretrain.model.objectives.objective import Objective
from pretrain.model.transformers_encoder import (
    TransformersEncoder,
    build_whole,
    head_of,
    inputs_of,
    measured,
    steps_of_head,
)


class TransformersModel(Objective):
    """Predict the hidden tokens with a model that `AutoModelForMaskedLM` builds."""

    held_out_loss = DEFAULT_OBJECTIVE
    encoder: TransformersEncoder

    def __init__(self, model: ModelSettings, execution: ExecutionPlan = PLAIN) -> None:
        super().__init__(model, execution)
        whole = self.encoder.whole
        self.head = head_of(whole)
        self._steps = steps_of_head(whole)

    @staticmethod
    def encoder_of(model: ModelSettings, execution: ExecutionPlan) -> TransformersEncoder:
        """Return the model of transformers without its head."""
        return TransformersEncoder(build_whole(model, execution))

    def forward(
        self, ids_BS: Tensor, positions_M: Tensor, labels_M: Tensor, branch_scales: Scales = None
    ) -> Tensor:
        """Return the mean cross-entropy in nats; arguments as in `Objective.forward`."""
        logits_MV = self.logits(ids_BS, positions_M, branch_scales).float()
        summed = F.cross_entropy(logits_MV, labels_M, ignore_index=IGNORED, reduction="sum")
        return summed / labels_M.ne(IGNORED).sum().clamp(min=1)

    def logits(
        self,
        ids_BS: Tensor,
        positions_M: Tensor | None,
        branch_scales: Scales = None,
        lengths_B: Tensor | None = None,
    ) -> Tensor:
        """Return logits_MV at the flat positions `row * S + column`, or logits_BSV of all."""
        if not self._steps:
            self.encoder.draw(branch_scales)
            found = self.encoder.whole(**inputs_of(ids_BS, lengths_B))
            return at_positions(found.logits, positions_M)
        x: Tensor = self.encoder(ids_BS, branch_scales, lengths_B, positions_M)
        for name in self._steps:
            x = getattr(self.head, name)(x)
        return x

    def check(self, length: int) -> None:
        """Try a pass on the host: each row must be computed by itself, with logits of each token.

        Raises:
            ConfigError: it fails, or rows, or the tokens of a row, share states.
        """
        whole, size = self.encoder.whole, self.encoder.whole.config.vocab_size
        generator = torch.Generator().manual_seed(0)
        ids_BS = torch.randint(5, size, (2, length), generator=generator)
        kind = type(whole).__name__
        whole.eval()
        try:
            with torch.no_grad():
                both, one = (whole(input_ids=ids).logits for ids in (ids_BS, ids_BS[:1]))
                again = whole(input_ids=ids_BS.flip(0)).logits.flip(0)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            line = first_line(error)
            raise ConfigError(f"a {kind} cannot compute rows of {length} tokens: {line}") from None
        finally:
            whole.train()
        if both.shape != (2, length, size):
            raise ConfigError(f"the logits of a {kind} are {list(both.shape)}: not one per token")
        largest = max(float((both[:1] - one).abs().max()), float((both - again).abs().max()))
        if not largest <= 1e-3 * float(both.abs().max()):
            raise ConfigError(f"a {kind} mixes the texts of a batch; Tupelo compares texts alone")

    @staticmethod
    def head_multiply_adds(
        model: ModelSettings, *, rows: float, length: int, predictions: float
    ) -> float:
        """Return what torch counted beside the blocks, see `measured`."""
        found = measured(model, length)
        tokens = predictions if found.predicts_words else rows * length
        return rows * found.outside_per_row + tokens * found.head_per_token
