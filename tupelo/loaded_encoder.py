"""A pre-trained encoder in use: texts to token ids, hidden states, vectors and guesses for [MASK].

Letters of shapes: N texts, S tokens of the longest of them, D width of the model, L blocks.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from finetune.training.batches import Batch, TokenRows, evaluation_batches
from pretrain.analysis.subjects import states_of
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
        place: a run folder; a checkpoint in it; an export; a BERT or the discriminator of an
            ELECTRA that Hugging Face's transformers saved, or its name on the Hub; a .pt file of
            the TUPE authors' code.
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
    `[MASK]` in a text is the mask token; other special tokens are read as text, as in training.
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
        shape = f"{self.model_settings.num_layers} layers of width {self.model_settings.width}"
        return f"<{self.name}{step}: {shape}, {self.model_settings.positions}, on {self.device}>"

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
        return self._padded(self._last_states, self._rows(texts, max_length), batch_size)

    def hidden_states_by_layer(
        self,
        texts: str | Iterable[Text],
        *,
        max_length: int | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> Tensor:
        """Return the states of all layers, (L + 1)NSD, fp32 on the CPU; 0 at padding.

        Entry 0 is the input of the first block, entry i the output of block i, entry L that of
        `hidden_states`, after the last LayerNorm: as `output_hidden_states` in transformers.

        Raises:
            ConfigError: as of `encode`.
        """
        states_NLSD = self._padded(self._all_states, self._rows(texts, max_length), batch_size)
        return states_NLSD.transpose(0, 1)

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
        for numbers, batch in self._batches(rows, batch_size):
            states_NSD = self._last_states(batch)
            pooled_ND = states_NSD[:, 0]
            if pooling == "mean":
                pooled_ND = (states_NSD * _is_token(batch)).sum(1) / batch.lengths_B[:, None]
            vectors_ND[numbers] = pooled_ND.cpu()
        return vectors_ND

    def fill_mask(self, text: str, *, top: int = 5) -> list[list[Guess]]:
        """Return the `top` most probable tokens for each [MASK] of a text, best first.

        A guess is (token, probability); the tokens are entries of the vocabulary, such as "##ing".

        Raises:
            ConfigError: there is no [MASK], the text has more than `sequence_length` tokens, or the
                model is a discriminator, which predicts no words.
        """
        with evaluation_mode(self.model):
            return fill_mask(
                self.model, self.text_encoder, text, top=top, longest_row=self.sequence_length
            )

    def _rows(self, texts: str | Iterable[Text], max_length: int | None) -> list[list[int]]:
        longest, most = self.sequence_length, self.model_settings.max_sequence_length
        if max_length is not None:
            longest = max_length
        if not 3 <= longest <= most:
            raise ConfigError(
                f"max_length={max_length} is not possible: the model has {most} positions; choose "
                f"3 to {most}"
            )
        pairs = [_as_pair(text, number) for number, text in enumerate(_as_list(texts))]
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

    def _batches(self, rows: list[list[int]], size: int) -> Iterator[tuple[list[int], Batch]]:
        """Return batches of rows of similar length on the device, with the numbers of the rows."""
        if size < 1:
            raise ConfigError(f"batch_size={size} is not possible; choose 1 or more")
        token_rows = TokenRows(
            rows, pad=self.text_encoder.pad, longest=self.model_settings.max_sequence_length
        )
        for numbers in evaluation_batches(token_rows.lengths, size):
            batch = token_rows.batch(numbers)
            yield numbers.tolist(), Batch(*(part.to(self.device) for part in batch))

    def _padded(
        self, computed: Callable[[Batch], Tensor], rows: list[list[int]], size: int
    ) -> Tensor:
        """Return the states (of some layers) of all rows, padded with zeros to the longest."""
        states = torch.empty(0)
        longest = max(map(len, rows))
        for numbers, batch in self._batches(rows, size):
            found = computed(batch).cpu()
            if not len(states):
                states = torch.zeros(len(rows), *found.shape[1:-2], longest, found.shape[-1])
            for number, row_states in zip(numbers, found, strict=True):
                length = len(rows[number])
                states[number, ..., :length, :] = row_states[..., :length, :]
        return states

    def _last_states(self, batch: Batch) -> Tensor:
        """Return states_NSD of a batch."""
        with evaluation_mode(self.model):
            states_NSD: Tensor = self.model.encoder(batch.ids_BS, lengths_B=batch.lengths_B)
            return states_NSD

    def _all_states(self, batch: Batch) -> Tensor:
        """Return states_NLSD of a batch, L from the input of the first block on."""
        with states_of(self.model.encoder.blocks) as states:
            last_NSD = self._last_states(batch)
        return torch.stack([*states[:-1], last_NSD], dim=1)


def _is_token(batch: Batch) -> Tensor:
    """Return 1 at tokens and 0 at padding, NS1."""
    places_S = torch.arange(batch.ids_BS.shape[1], device=batch.ids_BS.device)
    return (places_S < batch.lengths_B[:, None]).unsqueeze(-1)


def _as_list(texts: str | Iterable[Text]) -> list[Text]:
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, tuple):
        raise ConfigError(
            f"texts is a tuple of {len(texts)}; give a list: [(first, second)] is one pair, "
            "[first, second] are two texts"
        )
    return list(texts)


def _as_pair(text: Text, number: int) -> tuple[str, ...]:
    pair = text if isinstance(text, tuple) else (text,)
    if len(pair) not in (1, 2) or not all(isinstance(part, str) for part in pair):
        raise ConfigError(f"texts[{number}] is {text!r}; give a str, or a tuple of two")
    return pair
