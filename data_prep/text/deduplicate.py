"""Find exact repetitions among any number of documents and paragraphs, in bounded memory.

Every text is represented by 128 bits of its BLAKE2b hash: among 10^10 texts the chance that any
two different ones are taken for equal is 10^-19. The hashes are dealt into files by their first
bits, so that equal ones meet in the same file, and each file is sorted on its own.
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


def hashes_of(texts: Iterable[str]) -> Hashes:
    """Return the hash of each text [n, 2]."""
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, np.uint64).reshape(-1, 2)


def repetitions(parts: Iterator[Hashes], count: int, scratch: Path) -> Iterator[NDArray[np.uint64]]:
    """Yield the places of all texts that are equal to an earlier one, in several arrays.

    Memory: 100 MB for each 2^20 texts in a bucket, which is the most there are up to 4 * 10^9.

    Args:
        parts: The hashes in order, piece by piece.
        count: How many there are.
        scratch: Folder that does not exist; 24 bytes for each hash are written into it.
    """
    num_buckets = min(LARGEST_NUM_BUCKETS, -(-count // HASHES_PER_BUCKET))
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for bucket in _dealt(parts, num_buckets, scratch):
        records = np.fromfile(bucket, _RECORD)
        bucket.unlink()
        yield _repeated_places(records)
    scratch.rmdir()


def _dealt(parts: Iterator[Hashes], num_buckets: int, scratch: Path) -> list[Path]:
    """Write the hashes into files, by their value, and return the files that there are."""
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
    """Yield larger pieces: a file is opened for each piece and bucket."""
    waiting: list[Hashes] = []
    for hashes in parts:
        waiting.append(hashes)
        if sum(map(len, waiting)) >= HASHES_PER_BUCKET:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _repeated_places(records: NDArray[np.void]) -> NDArray[np.uint64]:
    """Return the places of all records but the first of each value; they come in their order."""
    order = np.lexsort((records["low"], records["high"]))  # stable: equal ones keep their order
    ordered = records[order]
    high, low = ordered["high"], ordered["low"]
    repeated = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    places: NDArray[np.uint64] = ordered["place"][1:][repeated]
    return places
