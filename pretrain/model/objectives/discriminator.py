"""The part of ELECTRA that is kept after pre-training: the discriminator without its generator."""

from torch import Tensor, nn

from pretrain.config.settings import ModelSettings
from pretrain.model.encoder import Encoder, initialise
from pretrain.model.objectives.heads import DiscriminatorHead


class Discriminator(nn.Module):
    """An encoder, and for every token the logit that it was replaced.

    Its weights have the names that they have in `ReplacedTokenDetection`.
    """

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        self.encoder = Encoder(model)
        self.head = DiscriminatorHead(model)
        initialise(self, model.initializer_range)

    def logits(self, ids_BS: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Return logits_BS; ids from `lengths_B` on are padding of any value."""
        logits_BS: Tensor = self.head(self.encoder(ids_BS, lengths_B=lengths_B))
        return logits_BS
