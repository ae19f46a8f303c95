"""A pre-trained model in memory: weights, settings and text encoder, and the network of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from data_prep.text.text_encoder import TextEncoder
from pretrain.config.errors import ConfigError
from pretrain.config.settings import (
    DEFAULT_OBJECTIVE,
    REPLACED_TOKEN_DETECTION,
    ElectraSettings,
    ModelSettings,
)
from pretrain.convert.weights import check_weights
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.model.objectives.replaced_tokens import Discriminator
from pretrain.model.objectives.transformers_model import TransformersModel

ENCODER_ALONE = "encoder_alone"  # the objective of weights without a head for masked words


class Pretrained(NamedTuple):
    """A pre-trained model of a run, an export or another program."""

    model: ModelSettings
    weights: dict[str, Tensor]  # state dict of its Objective or Discriminator, fp32, on the CPU
    text_encoder: TextEncoder
    name: str  # in tables
    place: str  # an absolute path, or a name on the Hub
    step: int | None  # of pre-training; None: unknown
    sequence_length: int  # of the longest row that it was trained on; adapted: before that
    objective: str = DEFAULT_OBJECTIVE
    # Of replaced-token detection; None: the generator is not among the weights.
    electra: ElectraSettings | None = None

    def built(self) -> nn.Module:
        """Return its network with new weights."""
        if self.objective == REPLACED_TOKEN_DETECTION and self.electra is None:
            return Discriminator(self.model)
        network = build_objective(self.model, self.objective, self.electra)
        if self.objective == ENCODER_ALONE:
            network.head = nn.Module()
        return network

    def checked(self) -> "Pretrained":
        """Return the model, whose parts belong together.

        Raises:
            ConfigError: the weights are those of another model, or the model has no embedding for
                an id of the tokenizer.
        """
        check_weights(self.weights, self.built, place=self.place)
        last, size = self.text_encoder.record.vocabulary_size - 1, self.model.vocabulary_size
        if last >= size:
            raise ConfigError(
                f"the tokenizer of {self.place} has ids up to {last:,}, but the model has {size:,} "
                "embeddings; give the tokenizer that it was trained with"
            )
        return self


def restored_network(
    pretrained: Pretrained,
) -> MaskedLanguageModel | TransformersModel | Discriminator:
    """Return the encoder and its head with their weights, in evaluation mode.

    Raises:
        ConfigError: it was trained for an objective of the user's own.
    """
    if pretrained.objective not in (DEFAULT_OBJECTIVE, REPLACED_TOKEN_DETECTION, ENCODER_ALONE):
        raise ConfigError(
            f"{pretrained.place} was trained with objective={pretrained.objective}; this needs a "
            f"model of objective={DEFAULT_OBJECTIVE} or {REPLACED_TOKEN_DETECTION}"
        )
    network: Any = pretrained._replace(electra=None).built()
    network.load_state_dict(without_generator(pretrained.weights), strict=False)
    return network.eval()  # type: ignore[no-any-return]


def token_logits(pretrained: Pretrained) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Return what maps ids_BS and lengths_B to the logits of every token: BSV, or BS."""
    model = restored_network(pretrained)
    if isinstance(model, Discriminator):
        return model.logits
    return lambda ids_BS, lengths_B: model.logits(ids_BS, None, lengths_B=lengths_B)


def without_generator(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights without those of ELECTRA's generator."""
    return {name: weight for name, weight in weights.items() if not name.startswith("generator.")}
