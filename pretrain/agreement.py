"""Lets all ranks decide the same thing at the same step, without any of them waiting for it."""

from collections.abc import Mapping

import torch
import torch.distributed as distributed
from torch import Tensor

from pretrain.ranks import Ranks


class Agreement:
    """Adds up a few numbers over the ranks, one step late.

    The sum of a step is started when the step begins and read when the next one does: the ranks
    then have had a whole step to exchange it. The numbers stay on the host, in a process group of
    their own, so that neither the device nor the collectives of training notice.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._group = distributed.new_group(backend="gloo") if ranks.world_size > 1 else None
        self._names: tuple[str, ...] = ()
        self._sums: Tensor | None = None
        self._work: distributed.Work | None = None

    def exchange(self, values: Mapping[str, float]) -> dict[str, float]:
        """Give the numbers of this rank, and get the sums over all ranks of what was given before.

        Every rank must call it equally often, with the same names.

        Returns:
            The sums of the call before this one; empty at the first call.
        """
        before = self.settle()
        self._names = tuple(values)
        self._sums = torch.tensor(list(values.values()), dtype=torch.float64)
        if self._group is not None:
            self._work = distributed.all_reduce(self._sums, group=self._group, async_op=True)
        return before

    def settle(self) -> dict[str, float]:
        """Return the sums of the last call, once; every rank must call it."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        if self._sums is None:
            return {}
        sums, self._sums = self._sums.tolist(), None
        return dict(zip(self._names, sums, strict=True))
