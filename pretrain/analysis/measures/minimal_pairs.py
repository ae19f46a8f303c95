"""Which of two sentences, of which one is wrong, a masked language model finds more probable.

The score of a sentence is its pseudo-log-likelihood (Salazar et al., ACL 2020, Eq. 1): the sum over
its tokens of the log-probability of the token where it alone is masked. A pair counts as solved
where the good sentence has the higher score; ties are not solved.

The pairs are files of JSON Lines with `sentence_good` and `sentence_bad`, as BLiMP has them
(Warstadt et al., TACL 2020), one file a paradigm; `linguistics_term` names the phenomenon.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from data_prep.files.progress_bar import Bar
from data_prep.files.quoting import quoted
from data_prep.files.strict_json import JsonError, json_in
from pretrain.analysis.subjects import TOKENS_AT_ONCE
from pretrain.config.errors import ConfigError
from pretrain.convert.text_encoder import TextEncoder
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel

GOOD, BAD, TERM = "sentence_good", "sentence_bad", "linguistics_term"
FRAME = 2  # [CLS] and [SEP]


class Paradigm(NamedTuple):
    """The pairs of a file."""

    name: str  # of the file, without its ending
    term: str  # the phenomenon; the name where the file has none
    pairs: list[tuple[str, str]]  # good, bad


def read_paradigms(folder: Path, most: int | None) -> list[Paradigm]:
    """Read the pairs of all files of a folder, of each file the first `most`.

    Raises:
        ConfigError: there is no file with pairs, or a line is none.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise ConfigError(
            f"{folder} holds no file of minimal pairs; give a folder of NAME.jsonl files with "
            f"{GOOD} and {BAD} in each line, such as BLiMP's data/"
        )
    return [_read(file, most) for file in files]


def _read(file: Path, most: int | None) -> Paradigm:
    try:
        lines = file.read_bytes().splitlines()[:most]
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    pairs, term = [], file.stem
    for number, line in enumerate(lines, 1):
        try:
            row = {TERM: term} | json_in(line)
            texts = [row[name] for name in (GOOD, BAD, TERM)]
        except (JsonError, TypeError, KeyError):
            texts = [None]
        if not all(isinstance(text, str) for text in texts):
            raise ConfigError(
                f"{file}:{number} is not a minimal pair: it needs the texts {GOOD} and {BAD}, and "
                f"{TERM} must be a text where there is one; remove it"
            )
        good, bad, term = texts
        pairs.append((good, bad))
    if not pairs:
        raise ConfigError(f"{file} is empty; remove it")
    return Paradigm(file.stem, term, pairs)


def solved(
    model: MaskedLanguageModel,
    text_encoder: TextEncoder,
    paradigm: Paradigm,
    *,
    longest_row: int,
    bar: Bar,
) -> list[bool]:
    """Return for each pair whether the good sentence has the higher score.

    Args:
        model: in evaluation mode.
        text_encoder: of the text that it was trained on.
        paradigm: its pairs.
        longest_row: in tokens, of those that the model takes.
        bar: gets a unit for each pair.

    Raises:
        ConfigError: a sentence is empty, or longer than the rows of the model.
    """
    texts = [text for pair in paradigm.pairs for text in pair]
    sentences = [text_encoder.pair_ids(text, max_length=sys.maxsize) for text in texts]
    for text, ids in zip(texts, sentences, strict=True):
        if len(ids) == FRAME:  # its score would be 0, the highest that there is
            raise ConfigError(f"{paradigm.name} has {quoted(text)}, without a token; remove it")
    longest = max(map(len, sentences))
    if longest > longest_row:
        raise ConfigError(
            f"a sentence of {paradigm.name} has {longest} tokens, the model takes {longest_row}; "
            "leave that file out"
        )
    scores = pseudo_log_likelihoods(model, sentences, text_encoder.special["mask"])
    bar.update(len(paradigm.pairs))
    return [good > bad for good, bad in zip(scores[::2], scores[1::2], strict=True)]


@torch.no_grad()
def pseudo_log_likelihoods(
    model: MaskedLanguageModel, sentences: Sequence[Sequence[int]], mask: int
) -> list[float]:
    """Return the sum of the log-probabilities of the tokens of each sentence, each masked alone.

    Args:
        model: in evaluation mode.
        sentences: rows of ids, each with [CLS] first and [SEP] last, which are not predicted.
        mask: the id of [MASK].
    """
    scores = [0.0] * len(sentences)
    by_length: dict[int, list[int]] = {}
    for number, ids in enumerate(sentences):
        by_length.setdefault(len(ids), []).append(number)
    for length, numbers in by_length.items():
        at_once = max(1, TOKENS_AT_ONCE // (length * max(1, length - FRAME)))
        for first in range(0, len(numbers), at_once):
            chosen = numbers[first : first + at_once]
            found = _scores(model, torch.tensor([sentences[one] for one in chosen]), mask)
            for number, score in zip(chosen, found, strict=True):
                scores[number] = score
    return scores


def _scores(model: MaskedLanguageModel, ids_NS: Tensor, mask: int) -> list[float]:
    """Return the score of each of N sentences of equal length."""
    num_sentences, length = ids_NS.shape
    hidden = length - FRAME  # tokens that are masked
    columns_M = torch.arange(1, hidden + 1).repeat(num_sentences)
    rows_M = torch.arange(num_sentences * hidden)
    ids_MS = ids_NS.repeat_interleave(hidden, 0)
    labels_M = ids_MS[rows_M, columns_M]
    ids_MS[rows_M, columns_M] = mask
    logits_MV = model.logits(ids_MS, rows_M * length + columns_M).float()
    found_M = logits_MV.log_softmax(-1).gather(1, labels_M[:, None])
    return found_M.view(num_sentences, hidden).sum(1).tolist()
