"""Rows of a micro-batch in their circular order, from any row on.

Shape letters as in positions.py; M = predicted positions, P = those of a row.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def turned(parts: Sequence[Tensor], first: int) -> Tensor:
    """Return the rows of some parts in one tensor, in circular order from row `first` on.

    They are copied once, and so are their gradients; one part that begins there is not.

    Args:
        parts: with rows as their first dimension, in circular order; some may have none.
        first: from 0, less than the number of rows.
    """
    for number, part in enumerate(parts):
        if first < len(part):
            before, after = torch.split(part, [first, len(part) - first])
            pieces = (after, *parts[number + 1 :], *parts[:number], before)
            filled = [piece for piece in pieces if len(piece)]
            return filled[0] if len(filled) == 1 else torch.cat(filled)
        first -= len(part)
    raise IndexError(f"there are {sum(map(len, parts))} rows")


def positions_in_turn(
    positions_M: Tensor, rows: int, length: int, first: int, count: int
) -> tuple[Tensor, Tensor]:
    """Return flat positions `row * S + column` in two tensors of rows that begin at `first`.

    Args:
        positions_M: ordered by row, equally many of each.
        rows: of the micro-batch.
        length: of a row.
        first: row that is at the front.
        count: of the rows in the first tensor; the second has the others.
    """
    columns_BP = turned([positions_M.view(rows, -1) % length], first)
    starts_B1 = length * torch.arange(rows, device=positions_M.device)[:, None]
    kept = (columns_BP[:count] + starts_B1[:count]).flatten()
    return kept, (columns_BP[count:] + starts_B1[: rows - count]).flatten()
