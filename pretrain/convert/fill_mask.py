"""The most probable tokens of a trained encoder for each [MASK] of a text."""

from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from pretrain.config.errors import ConfigError
from pretrain.convert.pretrained import Pretrained, restored_model
from pretrain.convert.text_encoder import MASK


class Guess(NamedTuple):
    """A token and its probability."""

    token: str
    probability: float


@torch.no_grad()
def fill_mask(pretrained: Pretrained, text: str, *, top: int) -> list[list[Guess]]:
    """Return the `top` most probable tokens for every [MASK] of `text`, best first.

    Raises:
        ConfigError: there is no [MASK], or the text is longer than the rows that it was trained on.
    """
    text_encoder = pretrained.text_encoder
    ids = text_encoder.ids(text)
    places = [place for place, token in enumerate(ids) if token == text_encoder.special["mask"]]
    if not places:
        raise ConfigError(f"the text {text!r} has no {MASK}; replace a word by it")
    if len(ids) > pretrained.sequence_length:
        raise ConfigError(
            f"the text has {len(ids)} tokens, the model was trained on "
            f"{pretrained.sequence_length}; shorten it"
        )
    logits_MV = restored_model(pretrained).logits(torch.tensor([ids]), torch.tensor(places))
    # Rows of the embedding beyond the entries of the tokenizer stand for no token.
    probabilities_MV = logits_MV[:, : text_encoder.record.vocabulary_size].softmax(-1)
    return [
        _best(text_encoder.tokenizer, probabilities_V, top) for probabilities_V in probabilities_MV
    ]


def _best(tokenizer: Tokenizer, probabilities_V: Tensor, top: int) -> list[Guess]:
    values, tokens = probabilities_V.topk(min(top, len(probabilities_V)))
    return [
        Guess(str(tokenizer.id_to_token(token)), value)
        for value, token in zip(values.tolist(), tokens.tolist(), strict=True)
    ]
