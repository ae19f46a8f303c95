"""The most probable tokens for each [MASK] of a text."""

from typing import NamedTuple

import torch

from data_prep.text.text_encoder import MASK, TextEncoder
from pretrain.config.errors import ConfigError
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.model.objectives.replaced_tokens import Discriminator
from pretrain.model.objectives.transformers_model import TransformersModel


class Guess(NamedTuple):
    """A token and its probability."""

    token: str
    probability: float


@torch.no_grad()
def fill_mask(
    model: MaskedLanguageModel | TransformersModel | Discriminator,
    text_encoder: TextEncoder,
    text: str,
    *,
    top: int,
    longest_row: int,
) -> list[list[Guess]]:
    """Return the `top` most probable tokens for every [MASK] of `text`, best first.

    Raises:
        ConfigError: there is no [MASK], the text has more than `longest_row` tokens, `top` is below
            1, or the model is a discriminator or an encoder alone, which predict no words.
    """
    if isinstance(model, Discriminator) or not [*model.head.parameters()]:
        kind = "a discriminator" if isinstance(model, Discriminator) else "an encoder alone"
        raise ConfigError(
            f"this model is {kind}, which predicts no words; use its hidden states, or fine-tune it"
        )
    if top < 1:
        raise ConfigError(f"top={top} asks for no token; give 1 or more")
    ids = text_encoder.ids(text)
    places = [place for place, token in enumerate(ids) if token == text_encoder.special["mask"]]
    if not places:
        raise ConfigError(f"the text {text!r} has no {MASK}; replace a word by it")
    if len(ids) > longest_row:
        raise ConfigError(
            f"the text has {len(ids)} tokens, the model was trained on {longest_row}; shorten it"
        )
    device = model.encoder.token_embeddings.weight.device
    logits_MV = model.logits(
        torch.tensor([ids], device=device), torch.tensor(places, device=device)
    )
    # Rows of the embedding beyond the entries of the tokenizer stand for no token.
    probabilities_MV = logits_MV[:, : text_encoder.record.vocabulary_size].softmax(-1)
    best = probabilities_MV.topk(min(top, probabilities_MV.shape[1]))
    return [
        [
            Guess(str(text_encoder.tokenizer.id_to_token(token)), probability)
            for probability, token in zip(*each, strict=True)
        ]
        for each in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
