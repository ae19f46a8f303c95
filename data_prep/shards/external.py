"""Read pre-training shards of other programs and undo their static masking.

Two layouts of HDF5 are read: one data set for each field with a sample in each row (NVIDIA's BERT,
bing_bert, academic-budget BERT, the last also without `next_sentence_labels`), and the same fields
inside groups of one or more samples.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from data_prep.shards.format import HDF5_DAMAGE
from data_prep.shards.manifest import ShardError

Ids = NDArray[np.int64]

SAMPLES_PER_READ = 2048
SUFFIXES = {".hdf5", ".h5", ".hdf"}
NEEDED = ("input_ids", "masked_lm_positions", "masked_lm_ids")


class Samples(NamedTuple):
    """Some consecutive samples of a file, unmasked."""

    ids: Ids  # [n, S]
    lengths: Ids  # [n], padding left out
    # [n], or None where samples are not pairs. 1: the second segment is a random one:
    # "1 if instance.is_random_next else 0" in NVIDIA's and 24hBERT's create_pretraining_data.py.
    is_random_next: NDArray[np.bool_] | None
    share: float  # of the file


class DamagedShard(ShardError):
    """A file that cannot be read to its end."""


def external_files(places: list[Path]) -> list[Path]:
    """Return the named HDF5 files and those below named folders, in order.

    Raises:
        ShardError: A place does not exist or holds none.
    """
    files = []
    for place in places:
        found = [place] if place.is_file() else []
        below = (file for file in place.rglob("*") if file.suffix in SUFFIXES)
        found += sorted(filter(Path.is_file, below))  # opening a pipe would wait for its writer
        if not found:
            raise ShardError(f"{place}: no {', '.join(sorted(SUFFIXES))} file is there")
        files += found
    return files


def read_samples(file: Path, *, sep_id: int) -> Iterator[Samples]:
    """Yield the samples of a file in order, in batches.

    Args:
        file: An HDF5 file.
        sep_id: Its last occurrence ends a sample where there is no `input_mask`. 24hBERT pads the
            shards of its RoBERTa with 0, which is <s> there, so the id of padding is ambiguous.

    Raises:
        DamagedShard: The file cannot be read to its end or contradicts itself.
        ShardError: The file has none of these layouts.
    """
    try:
        with h5py.File(file) as content:
            groups = list(_groups(file, content))
            for group in groups:
                for samples in _samples(group, sep_id):
                    yield samples._replace(share=samples.share / len(groups))
    except HDF5_DAMAGE as error:
        if isinstance(error, ShardError):
            raise
        raise DamagedShard(
            f"{file}: cannot be read ({error}); download it again, or leave such files out with "
            "--data.damaged_files skip"
        ) from error


def _groups(file: Path, content: Any) -> Iterator[Any]:
    """Yield what holds the fields: the file itself, or each of its groups in the order of names."""
    if "input_ids" in content:
        yield content
        return
    # "10" comes after "9"
    names = sorted(content, key=lambda name: (len(name), name))
    groups = [content[name] for name in names]
    if groups and all(isinstance(group, h5py.Group) and "input_ids" in group for group in groups):
        yield from groups
        return
    held = ", ".join(names[:5]) or "nothing"
    raise ShardError(f"{file}: holds {held} and no input_ids; only shards of others are imported")


def _samples(group: Any, sep_id: int) -> Iterator[Samples]:
    """Yield the samples of a file or group."""
    if missing := [name for name in NEEDED if name not in group]:
        raise KeyError(f"{missing[0]} is missing beside input_ids")
    if h5py.check_vlen_dtype(group["input_ids"].dtype):
        raise ShardError(f"{group.file.filename}: samples of different lengths are not read")
    is_single = group["input_ids"].ndim == 1
    num_samples = 1 if is_single else len(group["input_ids"])
    for first in range(0, num_samples, SAMPLES_PER_READ):

        def read(name: str, part: slice = slice(first, first + SAMPLES_PER_READ)) -> Ids:
            data = group[name]
            found: Ids = np.atleast_2d(data[()] if is_single else data[part]).astype(np.int64)
            return found

        ids = read("input_ids")
        positions, originals = read("masked_lm_positions"), read("masked_lm_ids")
        mask = read("input_mask") if "input_mask" in group else ids
        labels = (
            read("next_sentence_labels").reshape(-1) if "next_sentence_labels" in group else None
        )
        counts = {len(ids), len(positions), len(ids if labels is None else labels)}
        if len(counts) > 1 or positions.shape != originals.shape or mask.shape != ids.shape:
            raise ValueError("its fields have different numbers of samples or positions")
        if positions.size and not 0 <= positions.min() <= positions.max() < ids.shape[1]:
            raise ValueError(f"masked_lm_positions up to {positions.max()} of {ids.shape[1]}")
        # A position of 0 ends the list: it is that of [CLS], which is never masked.
        masked, columns = np.nonzero(np.logical_and.accumulate(positions != 0, axis=1))
        ids[masked, positions[masked, columns]] = originals[masked, columns]
        if "input_mask" in group:
            lengths = mask.sum(axis=1)
            if ((np.arange(mask.shape[1]) < lengths[:, None]) != (mask != 0)).any():
                raise ValueError("input_mask has padding before the end of a sequence")
        else:  # up to the last [SEP]
            lengths = np.where(ids == sep_id, np.arange(ids.shape[1]) + 1, 0).max(axis=1)
        yield Samples(ids, lengths, None if labels is None else labels != 0, len(ids) / num_samples)
