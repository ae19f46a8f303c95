"""Whether the ranks of a job compute at all.

In the first steps nobody knows how long a step takes: kernels are compiled, on a slow machine for
many minutes. But compilers, and ranks that other programs keep from the processor, want it all the
time, and ranks that hang in a collective of gloo, at a lock or at a file server do not. Ranks that
wait for a GPU do want it, and are not recognised.
"""

import math
import time
from collections.abc import Sequence

from pretrain.distributed.processes import wanted_seconds

SAMPLE_SECONDS = 10.0
# Between samples: if it is longer, the job was stopped, or had no first step.
LONGEST_GAP_SECONDS = 3 * SAMPLE_SECONDS
# Of a processor, for all ranks together, besides the samples: polling and the trackers need less.
LEAST_SHARE = 0.05


class Idleness:
    """For how long some processes, and those below them, have wanted no processor."""

    def __init__(self, pids: Sequence[int]) -> None:
        """Prepare; none of the processes means that it is not known."""
        self._pids = pids
        self._sampled_at: float | None = None
        self._since = self._wanted = 0.0

    def seconds(self, now: float) -> float:
        """Return for how long until the last sample; 0 if it is not known."""
        if self._pids and (self._sampled_at is None or now >= self._sampled_at + SAMPLE_SECONDS):
            self._sample(now)
        return (self._sampled_at or 0.0) - self._since

    def _sample(self, now: float) -> None:
        began = time.thread_time()
        before, wanted = self._sampled_at, wanted_seconds(self._pids)
        of_samples = len(self._pids) * (time.thread_time() - began)  # each rank takes one
        if wanted is None:
            self._pids = ()
            return
        gap = math.inf if before is None else now - before
        # Less is wanted where a compiler has ended: it was not idle.
        is_idle = abs(wanted - self._wanted) < LEAST_SHARE * gap + of_samples
        if gap > LONGEST_GAP_SECONDS or not is_idle:
            self._since = now
        self._sampled_at, self._wanted = now, wanted
