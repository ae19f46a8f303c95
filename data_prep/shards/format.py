"""The format of a shard folder: HDF5 files of sequences, their tokenizer and a manifest.

Each HDF5 file holds one contiguous, uncompressed dataset "ids" [sequences, sequence_length],
read through a memory map: random sequences cost a tenth of reading them through HDF5, and no open
HDF5 handle crosses a fork. Only this file and external.py import h5py.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from data_prep.files.quoting import plain
from data_prep.shards.manifest import (
    REBUILD,
    REPAIR,
    TOKENIZER_FILE,
    Manifest,
    ShardError,
    ShardRecord,
    SplitName,
    TokenizerRecord,
    check_tokenizer,
    read_manifest,
    sha256_of,
)

DATASET = "ids"
TOKENIZER_ATTRIBUTE = "tokenizer_sha256"
# h5py raises any of these for damage inside a file.
HDF5_DAMAGE = (OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError)

Sequences = NDArray[np.unsignedinteger]
Tokens = NDArray[np.unsignedinteger]
IdType = Literal["uint16", "uint32"]


def id_type(vocabulary_size: int) -> IdType:
    """Return the smallest type that holds every id."""
    return "uint16" if vocabulary_size <= 1 << 16 else "uint32"


class SequenceFormat(NamedTuple):
    """The format of sequences: [CLS], S - 2 tokens, [SEP]."""

    sequence_length: int
    tokenizer: TokenizerRecord

    @property
    def dtype(self) -> IdType:
        """Return the smallest type that holds every id."""
        return id_type(self.tokenizer.vocabulary_size)

    def packed(self, tokens: Tokens) -> Sequences:
        """Return tokens [n * (S - 2)] as sequences [n, S]."""
        num_sequences = len(tokens) // (self.sequence_length - 2)
        sequences = np.empty((num_sequences, self.sequence_length), self.dtype)
        sequences[:, 0] = self.tokenizer.special_tokens["cls"]
        sequences[:, 1:-1] = tokens.reshape(num_sequences, -1)
        sequences[:, -1] = self.tokenizer.special_tokens["sep"]
        return sequences


class SplitSequences:
    """The sequences of one split, as if they were one array. Can be pickled and forked."""

    def __init__(self, folder: Path, name: SplitName, manifest: Manifest):
        self.num_sequences = manifest.splits[name].rows
        self._folder, self._manifest, self._split = folder, manifest, manifest.splits[name]
        self._maps: dict[int, Sequences] = {}

    def read(self, numbers: NDArray[np.integer]) -> Sequences:
        """Return the sequences [n, sequence_length] with these numbers [n], in that order."""
        shards, places = np.divmod(numbers, self._split.rows_per_shard)
        found = np.empty((len(numbers), self._manifest.sequence_length), self._manifest.dtype)
        for shard in np.unique(shards).tolist():
            if shard not in self._maps:
                record = self._split.shards[shard]
                file, shape = self._folder / record.file, (record.rows, found.shape[1])
                offset = check_shard(file, record)
                self._maps[shard] = np.memmap(file, found.dtype, "r", offset, shape)
            here = shards == shard
            found[here] = self._maps[shard][places[here]]
        return found

    def fingerprint(self) -> str:
        """Return a sha256 that identifies the rows and the tokenizer that made them."""
        identity = [shard.sha256 for shard in self._split.shards]
        identity.append(self._manifest.tokenizer.sha256)
        return hashlib.sha256("\n".join(identity).encode()).hexdigest()


class ShardSet:
    """An opened shard folder."""

    def __init__(self, folder: Path, manifest: Manifest):
        self.folder = folder
        self.manifest = manifest
        self.tokenizer_path = folder / TOKENIZER_FILE

    def split(self, name: SplitName) -> SplitSequences:
        """Return the sequences of "train" or "valid".

        Raises:
            ShardError: There is no such split.
        """
        if name not in self.manifest.splits:
            raise ShardError(f"{self.folder}: holds no {name} sequences; {REBUILD}")
        return SplitSequences(self.folder, name, self.manifest)


def open_shards(folder: Path) -> ShardSet:
    """Open a shard folder and check each file, without reading the sequences (see verify.py).

    Raises:
        ShardError: A file is missing, cut short or damaged.
    """
    manifest = read_manifest(folder)
    check_tokenizer(folder, manifest)
    for split in manifest.splits.values():
        for record in split.shards:
            check_shard(folder / record.file, record)
    return ShardSet(folder, manifest)


def write_shard(
    file: Path, chunks: Iterable[Sequences], num_sequences: int, form: SequenceFormat
) -> ShardRecord:
    """Write one file of sequences, and describe it; `put_in_place` makes its folder last.

    The chunks come in order, as arrays [n, S] of any length.
    """
    shape = (num_sequences, form.sequence_length)
    with h5py.File(file, "w") as shard:
        dataset = shard.create_dataset(DATASET, shape, form.dtype, track_times=False)
        shard.attrs[TOKENIZER_ATTRIBUTE] = form.tokenizer.sha256
        shard.attrs["sequence_length"] = form.sequence_length
        first = 0
        for chunk in chunks:
            dataset[first : first + len(chunk)] = chunk
            first += len(chunk)
    assert first == num_sequences, f"{first} sequences instead of {num_sequences}"
    return ShardRecord(
        file=file.name, rows=num_sequences, bytes=file.stat().st_size, sha256=sha256_of(file)
    )


def check_shard(file: Path, record: ShardRecord) -> int:
    """Check one file against its record, without its sequences, and return where they begin.

    Raises:
        ShardError: The file is missing, cut short or damaged.
    """
    if not file.is_file():
        holder = "name the folder of the shards (that of a run holds none)"
        raise ShardError(f"{file}: no such file; {holder}, or {REPAIR}")
    if (size := file.stat().st_size) != record.bytes:
        raise ShardError(f"{file}: {size} bytes instead of {record.bytes}; {REPAIR}")
    try:
        with h5py.File(file) as shard:
            offset: int = shard[DATASET].id.get_offset()
            return offset
    except HDF5_DAMAGE as error:
        reason = plain(str(error.args[0]) if error.args else type(error).__name__)
        raise ShardError(f"{file}: not a readable shard ({reason}); {REPAIR}") from error
