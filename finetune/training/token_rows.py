"""Rows in which several tokens have an output: the first of each word, or those of a text.

P = the places of a row, its tokens that have an output.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from data_prep.text.moses import moses_words
from data_prep.text.text_encoder import TextEncoder
from finetune.tasks.task import Example


class TokenRow(NamedTuple):
    """A row, and what its outputs mean."""

    example: int  # its number in the split
    ids: NDArray[numpy.int32]  # compact, as `where`: a data set has millions of them
    places: NDArray[numpy.int64]  # P tokens
    where: NDArray[Any]  # of tags P words; of answers P x 2 characters, of [CLS] 0 and 0
    label: tuple[int, ...]  # of tags P; of an answer the places of its ends, or 0 and 0, and P


def tagged_windows(
    number: int, example: Example, encoder: TextEncoder, length: int
) -> Iterator[TokenRow]:
    """Yield [CLS] window [SEP], as `windows`; a word has its first token's output, as in BERT."""
    words, moses = example.texts, encoder.record.moses
    if moses is not None:
        words = tuple(moses_words(word, moses) for word in words)
    ids, spans = encoder.pieces(" ".join(words))
    starts = numpy.cumsum([0, *(len(word) + 1 for word in words)])
    # By the last character: some tokens begin with the space before a word.
    of_pieces = starts.searchsorted([end - 1 for _, end in spans], side="right") - 1
    words_W, firsts_W = numpy.unique(of_pieces, return_index=True)
    room, overlap, tags = length - 2, length // 4, example.label
    for start in range(0, max(1, len(ids) - overlap), room - overlap):
        # The last window that has a word gives its tag: not one in which it has little before it.
        is_here_W = (start + (overlap // 2 if start else 0) <= firsts_W) & (firsts_W < start + room)
        words_P, first_P = words_W[is_here_W], firsts_W[is_here_W] - start + 1
        label = tuple(tags[word] for word in words_P) if isinstance(tags, tuple) else ()
        row = [encoder.special["cls"], *ids[start : start + room], encoder.special["sep"]]
        yield TokenRow(number, numpy.array(row, numpy.int32), first_P, words_P, label)


def windows(number: int, example: Example, encoder: TextEncoder, length: int) -> Iterator[TokenRow]:
    """Yield [CLS] question [SEP] window [SEP]; windows overlap by a quarter of the length.

    A question is cut to half of it. The label is of the first answer, and [CLS] where the window
    does not hold it (Devlin et al. 2018, Sec. 4.3).
    """
    cls, sep = encoder.special["cls"], encoder.special["sep"]
    question = encoder.pieces(example.texts[0])[0][: length // 2 - 2]
    ids, spans = encoder.pieces(example.texts[1])
    # A token also covers what the tokenizer drops behind it, such as an accent.
    after = [*(begin for begin, _ in spans[1:]), len(example.texts[1])]
    spans = [(begin, max(end, n)) for (begin, end), n in zip(spans, after, strict=False)]
    start_of_pair = [cls, *question, *encoder.between]
    room, first = length - len(start_of_pair) - 1, len(start_of_pair)
    overlap = min(length // 4, room - 1)
    for start in range(0, max(1, len(ids) - overlap), room - overlap):
        window = slice(start, start + room)
        where = numpy.array([(0, 0), *spans[window]], numpy.int32)
        row = numpy.array([*start_of_pair, *ids[window], sep], numpy.int32)
        places = numpy.array([0, *range(first, first + len(where) - 1)])
        label = (*_ends(where, example), len(where))
        yield TokenRow(number, row, places, where, label)


def _ends(where: NDArray[Any], example: Example) -> tuple[int, int]:
    """Return the places of the first and the last token of the first answer."""
    answers: Any = example.label
    if not answers:
        return 0, 0
    start, end = answers[0].start, answers[0].start + len(answers[0].text)
    begins, ends = where.T
    firsts = numpy.flatnonzero((begins <= start) & (start < ends))
    lasts = numpy.flatnonzero((begins < end) & (end <= ends))
    return (int(firsts[0]), int(lasts[0])) if len(firsts) and len(lasts) else (0, 0)
