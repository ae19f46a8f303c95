"""Run a function over batches in worker processes; the output does not depend on how many."""

import itertools
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size`; the last list may be shorter."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def map_in_order(
    function: Callable[[list[Item]], Result], batched: Iterator[list[Item]]
) -> Iterator[Result]:
    """Yield `function(batch)` for each batch, in the order of the batches.

    A single batch is computed here, so that small inputs start no process. Only a few batches per
    worker wait at a time: an executor's own `map` would read the whole corpus into its queue.
    """
    first = list(itertools.islice(batched, 2))
    num_workers = len(os.sched_getaffinity(0))
    if len(first) < 2 or num_workers < 2:
        yield from map(function, itertools.chain(first, batched))
        return
    # Forked workers start at once and share what is already imported; spawned ones would import
    # the main module again, which for `pretrain` means torch and DeepSpeed.
    context = multiprocessing.get_context("fork")
    waiting: deque[Future[Result]] = deque()
    with ProcessPoolExecutor(num_workers, mp_context=context) as executor:
        for batch in itertools.chain(first, batched):
            waiting.append(executor.submit(function, batch))
            if len(waiting) > 4 * num_workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
