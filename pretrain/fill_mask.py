"""Print what a trained encoder puts in the place of [MASK].

python -m pretrain fill-mask runs/NAME "Paris is the [MASK] of France."
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from data_prep.manifest import TOKENIZER_FILE, TokenizerRecord, read_manifest
from pretrain.config import ConfigError, RunSettings
from pretrain.engine import load_weights
from pretrain.model.encoder import MaskedLanguageModel
from pretrain.recipe import load_settings
from pretrain.run_record import newest_checkpoint

MASK = "[MASK]"  # in the user's text, whatever the tokenizer calls it


class Guess(NamedTuple):
    """A token and its probability."""

    token: str
    probability: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m pretrain fill-mask`."""
    parser.add_argument("run", type=Path, help="run folder; its newest checkpoint is used")
    parser.add_argument("text", help=f"one or more words replaced by {MASK}")
    parser.add_argument("--top", type=int, default=5, help="guesses per mask (default: 5)")


def main(arguments: argparse.Namespace) -> None:
    """Print the guesses for every mask of the text."""
    checkpoint = newest_checkpoint(arguments.run)
    settings = load_settings(arguments.run)
    model = MaskedLanguageModel(settings.model).eval()
    model.load_state_dict(load_weights(checkpoint))
    words = Words(
        Tokenizer.from_file(str(arguments.run / TOKENIZER_FILE)),
        read_manifest(arguments.run).tokenizer,
    )
    print(f"{settings.name}, {checkpoint.name}: {arguments.text}")
    for number, guesses in enumerate(
        fill_mask(model, settings, words, arguments.text, top=arguments.top), start=1
    ):
        print(f"{MASK} {number}")
        for guess in guesses:
            print(f"  {guess.probability:7.2%}  {guess.token}")


@torch.no_grad()
def fill_mask(
    model: MaskedLanguageModel,
    settings: RunSettings,
    words: "Words",
    text: str,
    *,
    top: int,
) -> list[list[Guess]]:
    """Return the `top` most probable tokens for every [MASK] of `text`, best first.

    Raises:
        ConfigError: there is no [MASK], or the text is longer than the rows that it was trained on.
    """
    ids, tokenizer = words.ids(text), words.tokenizer
    places = [place for place, token in enumerate(ids) if token == words.special["mask"]]
    if not places:
        raise ConfigError(f"the text {text!r} has no {MASK}; put it in the place of a word")
    if len(ids) > settings.data.sequence_length:
        raise ConfigError(
            f"the text has {len(ids)} tokens, the model was trained on "
            f"{settings.data.sequence_length}; shorten it"
        )
    logits_MV = model.logits(torch.tensor([ids]), torch.tensor(places))
    # The embedding can have more rows than the tokenizer has entries: those mean nothing.
    probabilities_MV = logits_MV[:, : tokenizer.get_vocab_size()].softmax(-1)
    return [_best(tokenizer, probabilities_V, top) for probabilities_V in probabilities_MV]


class Words:
    """Turns text into a row, in the way in which the training text was."""

    def __init__(self, tokenizer: Tokenizer, record: TokenizerRecord) -> None:
        self.tokenizer, self.special = tokenizer, record.special_tokens
        self._joint, self._moses = record.joint, record.moses

    def ids(self, text: str) -> list[int]:
        """Return [CLS], the tokens of the text, [SEP]."""
        ids = [self.special["cls"]]
        for number, part in enumerate(text.split(MASK)):
            if number:
                ids.append(self.special["mask"])
            part = self._cut(part.strip())
            joined = self._joint + part if number and part else part
            ids += self.tokenizer.encode(joined, add_special_tokens=False).ids
        return [*ids, self.special["sep"]]

    def _cut(self, text: str) -> str:
        if self._moses is None:
            return text
        from data_prep.moses import moses_words

        return moses_words(text, self._moses)


def _best(tokenizer: Tokenizer, probabilities_V: Tensor, top: int) -> list[Guess]:
    values, tokens = probabilities_V.topk(min(top, len(probabilities_V)))
    return [
        Guess(str(tokenizer.id_to_token(token)), value)
        for value, token in zip(values.tolist(), tokens.tolist(), strict=True)
    ]
