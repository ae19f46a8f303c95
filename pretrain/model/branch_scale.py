"""How much a block counts in a micro-batch, and on which of its sequences it runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Where blocks are compiled, each number of sequences on which one runs is a graph: larger
# micro-batches are divided into as many groups at most.
SEQUENCE_GROUPS = 32


@dataclass(frozen=True)
class SequenceDraw:
    """The sequences of a micro-batch on which a block runs: a window of their circle.

    Their order is random, so a window is as good as any other set. All ranks run each block on
    equally many sequences, at least one: shapes and FLOPs do not depend on the draw, and no
    gradient is missing.
    """

    share: float  # of the sequences, in (0, 1], before rounding
    share_before: float  # sum of the shares of the blocks before
    place: float  # where the window begins, in [0, 1)
    rescales: bool  # whether branches are multiplied by sequences / kept sequences

    def window(self, sequences: int) -> tuple[int, int]:
        """Return the first sequence of the window, and the number of sequences in it.

        Sums over the blocks are rounded, not each block, so that the number of sequences on which
        blocks run is right within a group of them.
        """
        first = int(self.place * sequences)
        if self.share == 1:
            return first, sequences
        group = math.ceil(sequences / SEQUENCE_GROUPS)
        ends = (self.share_before, self.share_before + self.share)
        # Equal numbers that were summed in another order must be rounded alike.
        before, until = (math.floor(end * sequences / group + 0.5 + 1e-9) for end in ends)
        return first, min(sequences, max(1, group * (until - before)))

    def scale(self, sequences: int) -> float:
        """Return by how much the branches of the sequences in the window are multiplied."""
        return sequences / self.window(sequences)[1] if self.rescales else 1.0


# Of a block in a micro-batch: 0 skips it, another number scales its branches.
BranchScale = float | SequenceDraw
Scales = Sequence[BranchScale] | None  # of all blocks; None: each runs as it is
