"""A pre-trained encoder in use: texts to token ids, hidden states, vectors and guesses for [MASK].

Letters of shapes: N texts, S tokens of the longest of them, D width of the model.
"""

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from finetune.training.batches import Batch, TokenRows, evaluation_batches
from pretrain.config.errors import ConfigError
from pretrain.convert.fill_mask import Guess, fill_mask
from pretrain.convert.pretrained import Pretrained, load_pretrained, restored_network
from tupelo.evaluation_mode import evaluation_mode

Text = str | tuple[str, str]  # a text, or a pair

BATCH_SIZE = 32


class EncodedTexts(NamedTuple):
    """Rows of token ids: [CLS] text [SEP], or [CLS] first [SEP] second [SEP], then padding."""

    ids: Tensor  # NS, int64
    mask: Tensor  # NS, bool: True at tokens, False at padding
    lengths: Tensor  # N, int32: tokens of each row


def load(
    place: str | Path, *, checkpoint: str | int | None = None, device: str | torch.device = "cpu"
) -> "LoadedEncoder":
    """Load a pre-trained encoder with its tokenizer, in fp32 and evaluation mode.

    Args:
        place: a run folder; a checkpoint in it; an export; an encoder that Hugging Face's
            transformers saved, with a head for masked words or without one, the discriminator of
            an ELECTRA, or their names on the Hub; a .pt file of the TUPE authors' code.
        checkpoint: a step of the run, such as 10000; default: the newest.
        device: on which it computes, such as "cuda".

    Raises:
        ConfigError: there is no such model, or its parts do not belong together.
        ShardError, TokenizerError: the tokenizer is missing or damaged.
    """
    return LoadedEncoder(load_pretrained(place, checkpoint=checkpoint), torch.device(device))


class LoadedEncoder:
    """A pre-trained encoder on a device, with its tokenizer.

    Texts are given as a list; a pair of texts is a tuple in it; a text alone is a list of one.
    `[MASK]` and other names of special tokens in a text are these tokens, as in transformers.
    A row of more than `max_length` tokens is cut at the end of its longer text, and a warning says
    so. Nothing is drawn and no gradient is kept: for fine-tuning use `model`.

    Attributes:
        model: the torch module, as `build` returns it; of ELECTRA the discriminator.
        text_encoder: the tokenizer, with what was done to the text before it.
        name: of the run.
        place: of the weights.
        step: of pre-training; None: unknown.
        sequence_length: tokens of the longest row that it was trained on; default `max_length`.
        device: of the weights.
        model_settings: shape and variant.
    """

    def __init__(self, pretrained: Pretrained, device: torch.device) -> None:
        self.model = restored_network(pretrained).to(device)
        self.text_encoder, self.device = pretrained.text_encoder, device
        self.name, self.place, self.step = pretrained.name, pretrained.place, pretrained.step
        self.sequence_length = pretrained.sequence_length
        self.model_settings = pretrained.model

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step {self.step:,}"
        model = self.model_settings
        shape = f"{model.num_layers} layers of width {model.width}"
        theirs = model.transformers
        kind = theirs["model_type"] if isinstance(theirs, dict) else model.positions
        return f"<{self.name}{step}: {shape}, {kind}, on {self.device}>"

    def encode(self, texts: str | Iterable[Text], *, max_length: int | None = None) -> EncodedTexts:
        """Return the rows of texts, on the device of the model.

        `model.encoder(batch.ids, lengths_B=batch.lengths)` are their hidden states.

        Raises:
            ConfigError: there are no texts, one is no text, or `max_length` is not possible.
        """
        ids, lengths = self.text_encoder.padded(self._rows(texts, max_length))
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        return EncodedTexts(*(part.to(self.device) for part in (ids, mask, lengths)))

    def hidden_states(
        self,
        texts: str | Iterable[Text],
        *,
        max_length: int | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> Tensor:
        """Return the states after the last layer, NSD, fp32 on the CPU; 0 at padding.

        They take 4 N S D bytes. `encode(texts).mask` shows which are tokens.

        Raises:
            ConfigError: as of `encode`.
        """
        rows = self._rows(texts, max_length)
        states_NSD = torch.zeros(len(rows), max(map(len, rows)), self.model_settings.width)
        for numbers, _, found_NSD in self._states(rows, batch_size):
            length = min(found_NSD.shape[1], states_NSD.shape[1])  # beyond it is padding
            states_NSD[numbers, :length] = found_NSD[:, :length].cpu()
        return states_NSD

    def embed(
        self,
        texts: str | Iterable[Text],
        *,
        pooling: Literal["mean", "cls"] = "mean",
        max_length: int | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> Tensor:
        """Return a vector for each text, ND, fp32 on the CPU.

        Args:
            texts: any number: only the vectors are kept.
            pooling: "mean": the mean of the last states of its tokens, [CLS] and [SEP] included;
                "cls": the last state of [CLS].
            max_length: tokens of the longest row.
            batch_size: texts computed at a time.

        Raises:
            ConfigError: as of `encode`, or there is no such pooling.
        """
        if pooling not in ("mean", "cls"):
            raise ConfigError(f"pooling={pooling!r} does not exist; one of mean, cls")
        rows = self._rows(texts, max_length)
        vectors_ND = torch.empty(len(rows), self.model_settings.width)
        for numbers, lengths_N, states_NSD in self._states(rows, batch_size):
            pooled_ND = states_NSD[:, 0]
            if pooling == "mean":
                pooled_ND = states_NSD.sum(1) / lengths_N[:, None]
            vectors_ND[numbers] = pooled_ND.cpu()
        return vectors_ND

    def fill_mask(self, text: str, *, top: int = 5) -> list[list[Guess]]:
        """Return the `top` most probable tokens for each [MASK] of a text, best first.

        A guess is (token, probability); the tokens are entries of the vocabulary, such as "##ing".

        Raises:
            ConfigError: there is no [MASK], the text has more than `sequence_length` tokens, or the
                model is a discriminator or an encoder alone, which predict no words.
        """
        with evaluation_mode(self.model):
            return fill_mask(
                self.model, self.text_encoder, text, top=top, longest_row=self.sequence_length
            )

    def _rows(self, texts: str | Iterable[Text], max_length: int | None) -> list[list[int]]:
        most = self.model_settings.max_sequence_length
        longest = self.sequence_length if max_length is None else max_length
        if not 3 <= longest <= most:
            raise ConfigError(
                f"max_length={max_length} is not possible: the model has {most} positions; choose "
                f"3 to {most}"
            )
        if isinstance(texts, tuple):
            raise ConfigError(
                f"texts is a tuple of {len(texts)}; give a list: [(first, second)] is one pair, "
                "[first, second] are two texts"
            )
        given = [texts] if isinstance(texts, str) else texts
        pairs = [each if isinstance(each, tuple) else (each,) for each in given]
        for number, pair in enumerate(pairs):
            if len(pair) not in (1, 2) or not all(isinstance(part, str) for part in pair):
                raise ConfigError(f"texts[{number}] is {pair!r}; give a str, or a tuple of two")
        if not pairs:
            raise ConfigError("there are no texts; give at least one")
        rows = [self.text_encoder.ids(*pair) for pair in pairs]
        cut = [number for number, row in enumerate(rows) if len(row) > longest]
        if cut:
            warnings.warn(
                f"{len(cut)} of {len(rows)} texts had more than {longest} tokens and were cut; the "
                f"longest had {max(map(len, rows))}",
                stacklevel=3,
            )
        for number in cut:
            rows[number] = self.text_encoder.ids(*pairs[number], max_length=longest)
        return rows

    def _states(
        self, rows: list[list[int]], size: int
    ) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Yield the numbers, lengths_N and states_NSD, 0 at padding, of rows of similar length."""
        if size < 1:
            raise ConfigError(f"batch_size={size} is not possible; choose 1 or more")
        token_rows = TokenRows(
            rows, pad=self.text_encoder.pad, longest=self.model_settings.max_sequence_length
        )
        for numbers in evaluation_batches(token_rows.lengths, size):
            batch = Batch(*(part.to(self.device) for part in token_rows.batch(numbers)))
            with evaluation_mode(self.model):
                states_NSD = self.model.encoder(batch.ids_BS, lengths_B=batch.lengths_B)
            places_S = torch.arange(states_NSD.shape[1], device=self.device)
            is_token_NS = places_S < batch.lengths_B[:, None]
            yield numbers.tolist(), batch.lengths_B, states_NSD * is_token_NS[..., None]
