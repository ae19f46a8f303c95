"""Pack documents of token ids into full rows without padding, and unpack them again.

Full sentences as in RoBERTa (section 4.2, FULL-SENTENCES): sentences follow each other in order,
rows run on across documents with one separator between them. Differs from RoBERTa in what happens
at the end of a row: there the sentence that does not fit starts the next row and the rest is
padding; here it is continued in the next row, so that every position holds a token.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Rows leave in groups of about this many tokens; it bounds memory, not the result.
TOKENS_PER_GROUP = 1 << 20


def pack(
    documents: Iterable[list[int]],
    sequence_length: int,
    *,
    cls_id: int,
    sep_id: int,
    dtype: DTypeLike,
) -> Iterator[NDArray[np.unsignedinteger]]:
    """Yield arrays [n, sequence_length] of rows: `cls_id`, sequence_length - 2 tokens, `sep_id`.

    The tokens that do not fill a last row are left out.
    """
    waiting: list[int] = []
    for number, document in enumerate(documents):
        if number:
            waiting.append(sep_id)
        waiting += document
        if len(waiting) >= TOKENS_PER_GROUP:
            rows = _rows(waiting, sequence_length, cls_id, sep_id, dtype)
            del waiting[: len(rows) * (sequence_length - 2)]
            yield rows
    yield _rows(waiting, sequence_length, cls_id, sep_id, dtype)


def unpack(rows: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Return the stream of tokens that rows [n, S] were cut from, [n * (S - 2)]."""
    return rows[:, 1:-1].reshape(-1)


def _rows(
    tokens: list[int], sequence_length: int, cls_id: int, sep_id: int, dtype: DTypeLike
) -> NDArray[np.unsignedinteger]:
    per_row = sequence_length - 2
    num_rows = len(tokens) // per_row
    rows = np.empty((num_rows, sequence_length), dtype)
    rows[:, 0] = cls_id
    rows[:, 1:-1] = np.array(tokens[: num_rows * per_row], dtype).reshape(num_rows, per_row)
    rows[:, -1] = sep_id
    return rows
