"""Decisions that depend on the machine of a rank, made equal on all ranks.

Every rank looks at its own device, compilers and packages. Ranks that executed the model in
different ways would wait for each other in different collectives, or compute different sums.
"""

import contextlib
from collections.abc import Iterator

from pretrain.config.errors import ConfigError
from pretrain.distributed.ranks import Ranks, from_all_ranks


def first_problem(problem: str | None, ranks: Ranks) -> str | None:
    """Return the problem of the first rank that has one, naming the rank, or None; a collective.

    The rank is left out where all ranks have the same problem.
    """
    by_rank = from_all_ranks(problem, ranks)
    if len(set(by_rank)) == 1:
        return problem
    rank = next(rank for rank, found in enumerate(by_rank) if found is not None)
    return f"{by_rank[rank]} (on rank {rank})"


@contextlib.contextmanager
def refused_once(ranks: Ranks) -> Iterator[None]:
    """Let the first rank alone print a refusal that all ranks raise.

    Raises:
        ConfigError: of the body, on the first rank; SystemExit on the others.
    """
    try:
        yield
    except ConfigError:
        if ranks.is_first:
            raise
        raise SystemExit(1) from None
