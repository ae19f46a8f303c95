"""The format of a shard folder: HDF5 files of token rows, their tokenizer and a manifest.

Each HDF5 file holds one contiguous, uncompressed dataset "ids" [rows, sequence_length], read
through a memory map: random rows cost a tenth of what they cost through HDF5 itself, and there is
no handle that must not cross a fork. This is the only file that imports h5py.
"""

import hashlib
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.json"
DATASET = "ids"
REBUILD = "build the folder again"

SplitName = Literal["train", "valid"]
SpecialToken = Literal["pad", "unk", "cls", "sep", "mask"]
Rows = NDArray[np.unsignedinteger]


class ShardError(ValueError):
    """Something is wrong with a shard folder: one line that names the file and what to do."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenizerRecord(_Record):
    """What the rows say about the tokenizer that made them."""

    kind: Literal["wordpiece", "bpe"]
    sha256: str
    vocabulary_size: int
    special_tokens: dict[SpecialToken, int]


class ShardRecord(_Record):
    """One HDF5 file."""

    file: str
    rows: int
    bytes: int
    sha256: str


class SplitRecord(_Record):
    """One split; words, sentences and tokens count the text before it was cut into rows."""

    documents: int
    words: int
    sentences: int
    tokens: int
    rows: int
    rows_per_shard: int
    rows_dropped: int
    shards: tuple[ShardRecord, ...]


class Manifest(_Record):
    """What a shard folder holds. It carries no time, so that equal input gives equal bytes."""

    format: Literal["tupelo-shards"] = "tupelo-shards"
    version: Literal[1] = 1
    sequence_length: int
    dtype: Literal["uint16", "uint32"]
    tokenizer: TokenizerRecord
    splits: dict[SplitName, SplitRecord]
    settings: dict[str, object]
    source: str
    licence: str


class Split:
    """The rows of one split, as if they were one array. Can be pickled and forked."""

    def __init__(self, folder: Path, name: SplitName, manifest: Manifest):
        self.num_rows = manifest.splits[name].rows
        self._folder = folder
        self._name = name
        self._manifest = manifest
        self._maps: dict[int, Rows] = {}

    def rows(self, indices: NDArray[np.integer]) -> Rows:
        """Return the rows [n, sequence_length] with these global numbers [n], in that order.

        Raises:
            IndexError: A number is negative or not below `num_rows`.
        """
        if indices.size and (indices.min() < 0 or indices.max() >= self.num_rows):
            raise IndexError(f"row numbers must lie in 0..{self.num_rows - 1}")
        shards, rows = np.divmod(indices, self._manifest.splits[self._name].rows_per_shard)
        found = np.empty((len(indices), self._manifest.sequence_length), self._manifest.dtype)
        for shard in np.unique(shards).tolist():
            here = shards == shard
            found[here] = self._map(shard)[rows[here]]
        return found

    def fingerprint(self) -> str:
        """Return a sha256 that identifies the rows and the tokenizer that made them."""
        shards = self._manifest.splits[self._name].shards
        identity = [shard.sha256 for shard in shards] + [self._manifest.tokenizer.sha256]
        return hashlib.sha256("\n".join(identity).encode()).hexdigest()

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_maps": {}}  # pickled, a memory map becomes a copy of the file

    def _map(self, shard: int) -> Rows:
        if shard not in self._maps:
            record = self._manifest.splits[self._name].shards[shard]
            self._maps[shard] = _memory_map(self._folder / record.file, record, self._manifest)
        return self._maps[shard]


class ShardSet:
    """An opened shard folder."""

    def __init__(self, folder: Path, manifest: Manifest):
        self.folder = folder
        self.manifest = manifest
        self.tokenizer_path = folder / TOKENIZER_FILE

    def split(self, name: SplitName) -> Split:
        """Return the rows of "train" or "valid"."""
        return Split(self.folder, name, self.manifest)


def open_shards(folder: Path) -> ShardSet:
    """Open a shard folder and check each file, without reading the rows (see `verify`).

    Raises:
        ShardError: A file is missing, cut short, damaged, or made with another tokenizer.
    """
    manifest = _read_manifest(folder)
    _check_tokenizer(folder, manifest)
    for split in manifest.splits.values():
        for record in split.shards:
            _memory_map(folder / record.file, record, manifest)
    return ShardSet(folder, manifest)


def verify(folder: Path) -> list[str]:
    """Read everything and return each problem as one line; an empty list means all is well."""
    try:
        manifest = _read_manifest(folder)
    except ShardError as error:
        return [str(error)]
    problems = []
    try:
        _check_tokenizer(folder, manifest)
    except ShardError as error:
        problems.append(str(error))
    for name, split in manifest.splits.items():
        num_rows = sum(record.rows for record in split.shards)
        if num_rows != split.rows or any(r.rows != split.rows_per_shard for r in split.shards):
            problems.append(f"{folder / MANIFEST_FILE}: the row counts of {name} contradict")
        for record in split.shards:
            try:
                _check_content(folder / record.file, record, manifest)
            except ShardError as error:
                problems.append(str(error))
    return problems


def write_shards(
    folder: Path, name: SplitName, rows: Rows, *, max_rows_per_shard: int, tokenizer_sha256: str
) -> tuple[ShardRecord, ...]:
    """Write rows [n, S] as files of equal length and describe them.

    The last n % num_shards rows are left out.
    """
    num_shards = -(-len(rows) // max_rows_per_shard)
    rows_per_shard = len(rows) // num_shards
    records = []
    for number in range(num_shards):
        file = folder / f"{name}-{number:05d}.h5"
        with h5py.File(file, "w") as shard:
            part = rows[number * rows_per_shard : (number + 1) * rows_per_shard]
            shard.create_dataset(DATASET, data=part, track_times=False)
            shard.attrs["tokenizer_sha256"] = tokenizer_sha256
            shard.attrs["sequence_length"] = rows.shape[1]
        records.append(
            ShardRecord(
                file=file.name,
                rows=rows_per_shard,
                bytes=file.stat().st_size,
                sha256=sha256_of(file),
            )
        )
    return tuple(records)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, readable for people."""
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n")


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_manifest(folder: Path) -> Manifest:
    file = folder / MANIFEST_FILE
    if not file.is_file():
        raise ShardError(
            f"{file}: no such file; build the shards with python -m data_prep build, "
            "or name a folder that holds them"
        )
    try:
        return Manifest.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        raise ShardError(f"{file}: {place}: {first['msg']}; {REBUILD}") from error


def _check_tokenizer(folder: Path, manifest: Manifest) -> None:
    file = folder / TOKENIZER_FILE
    if not file.is_file():
        raise ShardError(f"{file}: no such file; {REBUILD}")
    if sha256_of(file) != manifest.tokenizer.sha256:
        raise ShardError(f"{file}: not the tokenizer that made these shards; {REBUILD}")


def _check_content(file: Path, record: ShardRecord, manifest: Manifest) -> None:
    rows = _memory_map(file, record, manifest)
    special = manifest.tokenizer.special_tokens
    if sha256_of(file) != record.sha256:
        raise ShardError(f"{file}: the content has changed since it was written; {REBUILD}")
    if rows.max() >= manifest.tokenizer.vocabulary_size:
        raise ShardError(f"{file}: holds ids beyond the vocabulary; {REBUILD}")
    if (rows[:, 0] != special["cls"]).any() or (rows[:, -1] != special["sep"]).any():
        raise ShardError(f"{file}: holds rows that are not [CLS] ... [SEP]; {REBUILD}")


def _memory_map(file: Path, record: ShardRecord, manifest: Manifest) -> Rows:
    """Check one shard against the manifest and return its rows, mapped into memory."""
    if not file.is_file():
        raise ShardError(f"{file}: no such file; {REBUILD}")
    if (size := file.stat().st_size) != record.bytes:
        raise ShardError(f"{file}: {size} bytes instead of {record.bytes}; {REBUILD}")
    try:
        with h5py.File(file) as shard:
            dataset = shard[DATASET]
            offset, shape, dtype = dataset.id.get_offset(), dataset.shape, dataset.dtype
            tokenizer_sha256 = shard.attrs["tokenizer_sha256"]
    except (OSError, KeyError) as error:
        raise ShardError(f"{file}: not a readable shard ({error}); {REBUILD}") from error
    if tokenizer_sha256 != manifest.tokenizer.sha256:
        raise ShardError(f"{file}: made with another tokenizer than {TOKENIZER_FILE}; {REBUILD}")
    expected = (record.rows, manifest.sequence_length)
    if offset is None or shape != expected or dtype != manifest.dtype:
        raise ShardError(
            f"{file}: holds {dtype} {shape} instead of contiguous {manifest.dtype} {expected}; "
            f"{REBUILD}"
        )
    return np.memmap(file, dtype, "r", offset, shape)
