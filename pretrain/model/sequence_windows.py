"""Sequences of a micro-batch in their circular order, from any sequence on.

Shape letters as in positions.py; M = predicted positions, P = those of a sequence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def turned(parts: Sequence[Tensor], first: int) -> Tensor:
    """Return the sequences of some parts in one tensor, in circular order from sequence `first` on.

    They are copied once, and so are their gradients; one part that begins there is not.

    Args:
        parts: with sequences as their first dimension, in circular order; some may have none.
        first: from 0, less than the number of sequences.
    """
    for number, part in enumerate(parts):
        if first < len(part):
            before, after = torch.split(part, [first, len(part) - first])
            pieces = (after, *parts[number + 1 :], *parts[:number], before)
            filled = [piece for piece in pieces if len(piece)]
            return filled[0] if len(filled) == 1 else torch.cat(filled)
        first -= len(part)
    raise IndexError(f"there are {sum(map(len, parts))} sequences")


def positions_in_turn(
    positions_M: Tensor, sequences: int, length: int, first: int, count: int
) -> tuple[Tensor, Tensor]:
    """Return flat positions `sequence * S + column` in two tensors, in turn from `first` on.

    Args:
        positions_M: ordered by sequence, equally many of each.
        sequences: of the micro-batch.
        length: of a sequence.
        first: sequence that is at the front.
        count: of the sequences in the first tensor; the second has the others.
    """
    columns_BP = turned([positions_M.view(sequences, -1) % length], first)
    starts_B1 = length * torch.arange(sequences, device=positions_M.device)[:, None]
    kept = (columns_BP[:count] + starts_B1[:count]).flatten()
    return kept, (columns_BP[count:] + starts_B1[: sequences - count]).flatten()
