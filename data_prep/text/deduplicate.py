"""Find exact repetitions among any number of documents and paragraphs, in bounded memory.

Every text is represented by 128 bits of its BLAKE2b hash: among 10^10 texts the probability that
any two different ones collide is 10^-19. The hashes are written to bucket files by their value, so
that equal ones share a bucket, and each bucket is sorted on its own.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]  # [n, 2]

HASHES_PER_BUCKET = 1 << 20  # sorting that many takes about 100 MB
LARGEST_NUM_BUCKETS = 4096
_RECORD = np.dtype([("high", np.uint64), ("low", np.uint64), ("place", np.uint64)])


def hashes_of(texts: Iterable[bytes]) -> Hashes:
    """Return the hash of each text [n, 2]."""
    digests = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, np.uint64).reshape(-1, 2)


def repetitions(parts: Iterator[Hashes], count: int, scratch: Path) -> Iterator[NDArray[np.uint64]]:
    """Yield the places of all texts that equal an earlier one, in several arrays.

    Memory: about 100 MB up to 4 * 10^9 texts; beyond that buckets exceed 2^20 texts.

    Args:
        parts: The hashes in order, piece by piece.
        count: Their number.
        scratch: Folder for temporary files of 24 bytes a hash; removed before and after.
    """
    num_buckets = min(LARGEST_NUM_BUCKETS, -(-count // HASHES_PER_BUCKET))
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for bucket in _into_buckets(parts, num_buckets, scratch):
        records = np.fromfile(bucket, _RECORD)
        bucket.unlink()
        order = np.lexsort((records["low"], records["high"]))  # stable: equal ones keep their order
        ordered = records[order]
        high, low = ordered["high"], ordered["low"]
        repeated = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        yield ordered["place"][1:][repeated]
    scratch.rmdir()


def _into_buckets(parts: Iterator[Hashes], num_buckets: int, scratch: Path) -> list[Path]:
    """Write the hashes into bucket files by their value, and return these files."""
    first = 0
    for hashes in _joined(parts):
        records = np.empty(len(hashes), _RECORD)
        records["high"], records["low"] = hashes.T
        records["place"] = np.arange(first, first + len(hashes))
        first += len(hashes)
        buckets = records["high"] % np.uint64(max(1, num_buckets))
        order = np.argsort(buckets, kind="stable")
        numbers, starts = np.unique(buckets[order], return_index=True)
        for number, group in zip(numbers, np.split(records[order], starts[1:]), strict=False):
            with (scratch / f"{number}.hashes").open("ab") as stream:
                group.tofile(stream)
    return sorted(scratch.iterdir())


def _joined(parts: Iterator[Hashes]) -> Iterator[Hashes]:
    """Yield larger pieces: each piece opens one file for each bucket."""
    waiting: list[Hashes] = []
    for hashes in parts:
        waiting.append(hashes)
        if sum(map(len, waiting)) >= HASHES_PER_BUCKET:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)
