"""The format of a shard folder: HDF5 files of token rows, their tokenizer and a manifest.

Each HDF5 file holds one contiguous, uncompressed dataset "ids" [rows, sequence_length], read
through a memory map: random rows cost a tenth of what they cost through HDF5 itself, and there is
no handle that must not cross a fork. Only this file and foreign_shards.py import h5py.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.json"
DATASET = "ids"
FORMAT, VERSION = "tupelo-shards", 2
REBUILD = "build the folder again"
REPAIR = "python -m data_prep repair drops what is broken, with --rebuild it restores it"

SplitName = Literal["train", "valid"]
SpecialToken = Literal["pad", "unk", "cls", "sep", "mask"]
NEEDED_TOKENS: tuple[SpecialToken, ...] = ("cls", "sep", "mask")
Rows = NDArray[np.unsignedinteger]


class ShardError(ValueError):
    """Something is wrong with a shard folder: one line that names the file and what to do."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenizerRecord(_Record):
    """What the rows say about the tokenizer that made them."""

    kind: Literal["wordpiece", "bpe", "byte-bpe", "loaded"]
    sha256: str
    vocabulary_size: int = Field(ge=1, le=1 << 32)
    special_tokens: dict[SpecialToken, int]
    joint: Literal["", " "] = ""  # what is put before a sentence that follows another one
    moses: str | None = None  # language of the Moses steps that come before the tokenizer

    @field_validator("special_tokens")
    @classmethod
    def _has_what_rows_need(
        cls, tokens: dict[SpecialToken, int], info: ValidationInfo
    ) -> dict[SpecialToken, int]:
        size = info.data.get("vocabulary_size", 0)
        for name in NEEDED_TOKENS:
            if not 0 <= tokens.get(name, -1) < size:
                raise ValueError(f"no id for {name!r} among the {size} of the vocabulary")
        return tokens


class ShardRecord(_Record):
    """One HDF5 file."""

    file: str
    rows: int = Field(ge=1)
    bytes: int
    sha256: str

    @field_validator("file")
    @classmethod
    def _stays_in_the_folder(cls, file: str) -> str:
        if Path(file).name != file or file in ("", "..") or "\0" in file:
            raise ValueError(f"{file!r} is not the name of a file in this folder")
        return file


class SplitRecord(_Record):
    """One split; documents to tokens count the text before it was cut into rows.

    Words and sentences are unknown (None) where only tokens were at hand.
    """

    documents: int
    words: int | None
    sentences: int | None
    tokens: int
    rows: int
    rows_per_shard: int = Field(ge=1)
    rows_dropped: int
    shards: tuple[ShardRecord, ...] = Field(min_length=1)


class Manifest(_Record):
    """What a shard folder holds. It carries no time, so that equal input gives equal bytes."""

    format: Literal["tupelo-shards"] = "tupelo-shards"
    version: Literal[2] = 2
    sequence_length: int = Field(ge=3)
    dtype: Literal["uint16", "uint32"]
    tokenizer: TokenizerRecord
    splits: dict[SplitName, SplitRecord]
    settings: dict[str, object]
    source: str
    licence: str
    cleaning: dict[str, int] = {}  # what reading and cleaning changed or left out, and how often
    history: tuple[str, ...] = ()  # what was done to the rows after they were built


class ShardHeader(NamedTuple):
    """What an HDF5 file says about its rows, which begin at byte `offset`."""

    offset: int | None  # None if they are not contiguous
    shape: tuple[int, ...]
    dtype: str
    tokenizer_sha256: str


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

    def read_in_order(self, shards: Iterable[int], *, max_rows: int) -> Iterator[Rows]:
        """Yield the rows of these files one after the other, at most `max_rows` at once."""
        for shard in shards:
            rows = self._map(shard)
            for first in range(0, len(rows), max_rows):
                yield rows[first : first + max_rows]

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
            file = self._folder / record.file
            header = check_shard(file, record, self._manifest)
            self._maps[shard] = np.memmap(file, header.dtype, "r", header.offset or 0, header.shape)
        return self._maps[shard]


class ShardSet:
    """An opened shard folder."""

    def __init__(self, folder: Path, manifest: Manifest):
        self.folder = folder
        self.manifest = manifest
        self.tokenizer_path = folder / TOKENIZER_FILE

    def split(self, name: SplitName) -> Split:
        """Return the rows of "train" or "valid".

        Raises:
            ShardError: There is no such split.
        """
        if name not in self.manifest.splits:
            raise ShardError(
                f"{self.folder}: holds no {name} rows; "
                "python -m data_prep split holds out documents anew"
            )
        return Split(self.folder, name, self.manifest)


def open_shards(folder: Path) -> ShardSet:
    """Open a shard folder and check each file, without reading the rows (see verify.py).

    Raises:
        ShardError: A file is missing, cut short, damaged, or made with another tokenizer.
    """
    manifest = read_manifest(folder)
    check_tokenizer(folder, manifest)
    check_counts(folder, manifest)
    for split in manifest.splits.values():
        for record in split.shards:
            check_shard(folder / record.file, record, manifest)
    return ShardSet(folder, manifest)


def write_shard(
    file: Path,
    chunks: Iterable[Rows],
    *,
    shape: tuple[int, int],
    dtype: str,
    tokenizer_sha256: str,
) -> ShardRecord:
    """Write one file of rows, complete or not at all, and describe it.

    Args:
        file: Name of the file.
        chunks: The rows in order, as arrays [n, S] of any length.
        shape: (number of rows, S).
        dtype: "uint16" or "uint32".
        tokenizer_sha256: Names the tokenizer that made the ids.
    """
    partial = _partial(file)
    with h5py.File(partial, "w") as shard:
        dataset = shard.create_dataset(DATASET, shape, dtype, track_times=False)
        shard.attrs["tokenizer_sha256"] = tokenizer_sha256
        shard.attrs["sequence_length"] = shape[1]
        first = 0
        for chunk in chunks:
            dataset[first : first + len(chunk)] = chunk
            first += len(chunk)
    assert first == shape[0], f"{first} rows instead of {shape[0]}"
    replace(partial, file)
    return ShardRecord(
        file=file.name, rows=shape[0], bytes=file.stat().st_size, sha256=sha256_of(file)
    )


def save_text(file: Path, text: str) -> None:
    """Write a text file, complete or not at all."""
    partial = _partial(file)
    partial.write_text(text, encoding="utf-8", newline="\n")
    replace(partial, file)


def replace(partial: Path, file: Path) -> None:
    """Give a written file its final name, once its content has reached the disk."""
    with partial.open("rb") as stream:
        os.fsync(stream.fileno())
    partial.replace(file)


def _partial(file: Path) -> Path:
    """Return a name for a file that is not complete; a killed build's worker may still write."""
    return file.with_name(f"{file.name}.partial-{os.getpid()}")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, readable for people."""
    save_text(folder / MANIFEST_FILE, manifest.model_dump_json(indent=2) + "\n")


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a shard folder.

    Raises:
        ShardError: It is missing, not JSON, of another version or format, or incomplete.
    """
    file = folder / MANIFEST_FILE
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise ShardError(
            f"{file}: {(error.strerror or str(error)).lower()}; build the shards with "
            "python -m data_prep build, or name a folder that holds them"
        ) from error
    except ValueError as error:  # JSON or UTF-8
        raise ShardError(f"{file}: not JSON ({error}); {REBUILD}") from error
    _check_version(file, content)
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ShardError(f"{file}: {place}: {message}; {REBUILD}") from error


def check_tokenizer(folder: Path, manifest: Manifest) -> None:
    """Check that the folder holds the tokenizer that made its rows.

    Raises:
        ShardError: It does not.
    """
    file = folder / TOKENIZER_FILE
    if not file.is_file():
        raise ShardError(f"{file}: no such file; {REBUILD}")
    if sha256_of(file) != manifest.tokenizer.sha256:
        raise ShardError(f"{file}: not the tokenizer that made these shards; {REBUILD}")


def check_counts(folder: Path, manifest: Manifest) -> None:
    """Check that the numbers of rows agree: the place of a row is computed from them.

    Raises:
        ShardError: They do not, or a file is named twice, or there is nothing to train on.
    """
    file = folder / MANIFEST_FILE
    if "train" not in manifest.splits:
        raise ShardError(f"{file}: names no training rows; {REBUILD}")
    names = [record.file for split in manifest.splits.values() for record in split.shards]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ShardError(f"{file}: names {min(twice)} more than once; {REBUILD}")
    for name, split in manifest.splits.items():
        rows = {record.rows for record in split.shards}
        if rows != {split.rows_per_shard} or split.rows != split.rows_per_shard * len(split.shards):
            raise ShardError(f"{file}: the row counts of {name} contradict each other; {REPAIR}")


def check_shard(file: Path, record: ShardRecord, manifest: Manifest) -> ShardHeader:
    """Check one file against the manifest, without reading its rows, and return its header.

    Raises:
        ShardError: The file is missing, cut short, damaged, or holds other rows.
    """
    if not file.is_file():
        raise ShardError(f"{file}: no such file; {REPAIR}")
    if (size := file.stat().st_size) != record.bytes:
        raise ShardError(f"{file}: {size} bytes instead of {record.bytes}; {REPAIR}")
    header = read_header(file)
    if header.tokenizer_sha256 != manifest.tokenizer.sha256:
        raise ShardError(f"{file}: made with another tokenizer than {TOKENIZER_FILE}; {REPAIR}")
    expected = (record.rows, manifest.sequence_length)
    if header.offset is None or header.shape != expected or header.dtype != manifest.dtype:
        raise ShardError(
            f"{file}: holds {header.dtype} {header.shape} instead of contiguous "
            f"{manifest.dtype} {expected}; {REPAIR}"
        )
    return header


def read_header(file: Path) -> ShardHeader:
    """Return what an HDF5 file says about its rows.

    Raises:
        ShardError: It is not a shard.
    """
    try:
        with h5py.File(file) as shard:
            dataset = shard[DATASET]
            return ShardHeader(
                dataset.id.get_offset(),
                dataset.shape,
                str(dataset.dtype),
                str(shard.attrs["tokenizer_sha256"]),
            )
    # An "ids" that is no dataset has no shape; HDF5 reports some damage as RuntimeError.
    except (OSError, KeyError, AttributeError, RuntimeError) as error:
        raise ShardError(f"{file}: not a readable shard ({error}); {REPAIR}") from error


def _check_version(file: Path, content: Any) -> None:
    found = content if isinstance(content, dict) else {}
    if found.get("format") != FORMAT:
        raise ShardError(f"{file}: not the manifest of a shard folder; name one, or {REBUILD}")
    version = found.get("version")
    if version == 1:
        raise ShardError(f"{file}: written by an older version of this program; {REBUILD}")
    if version != VERSION:
        raise ShardError(
            f"{file}: version {version!r}, but this program reads version {VERSION}; "
            f"update the program, or {REBUILD}"
        )
