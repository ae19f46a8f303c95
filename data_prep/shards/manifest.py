"""The manifest of a shard folder: its records, reading and writing it, checks without HDF5.

This file imports no HDF5 and no tokenizer, so every room may use its names and `ShardError`.
"""

import hashlib
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from data_prep.files.atomic import save_text
from data_prep.files.errors import UserError
from data_prep.files.program import shell_command
from data_prep.files.quoting import plain

MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.json"

REBUILD = "build the folder again"
REPAIR = f"{shell_command('data', 'repair')} restores it from the text"

SplitName = Literal["train", "valid"]
SpecialToken = Literal["pad", "unk", "cls", "sep", "mask"]

LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)*")  # libraries use the code in names of files


class ShardError(UserError):
    """A shard folder is damaged or unusable: one line that names the file and the remedy."""


class _Record(BaseModel):
    # Strict: "12", 12.0 and true are not whole numbers.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


TokenizerKind = Literal["wordpiece", "bpe", "byte-bpe"]  # that can be trained


class TokenizerRecord(_Record):
    """The tokenizer that made the sequences."""

    kind: Literal[TokenizerKind, "loaded"]
    sha256: str
    vocabulary_size: int = Field(ge=1, le=1 << 32)
    special_tokens: dict[SpecialToken, int]
    joint: Literal["", " "] = ""  # prefix of a sentence that follows another one
    moses: str | None = None  # language of the Moses steps before the tokenizer


class ShardRecord(_Record):
    """One HDF5 file."""

    file: str
    rows: int = Field(ge=1)
    bytes: int = Field(ge=1)
    sha256: str


class SplitRecord(_Record):
    """One split; documents to tokens count the text before it was cut into sequences.

    Words are None where the folder was made from tokens alone.
    """

    documents: int = Field(ge=0)
    words: int | None = Field(ge=0)
    sentences: int | None = Field(None, exclude=True)  # of earlier versions
    tokens: int = Field(ge=0)
    rows: int = Field(ge=1)
    rows_per_shard: int = Field(ge=1)
    rows_dropped: int = Field(ge=0)
    shards: tuple[ShardRecord, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_rows(self) -> "SplitRecord":
        rows = [shard.rows for shard in self.shards]
        if {*rows} != {self.rows_per_shard} or sum(rows) != self.rows:
            raise ValueError("the files hold another number of rows")
        return self


class Manifest(_Record):
    """The content of a shard folder. It holds no time, so that equal input gives equal bytes."""

    format: Literal["tupelo-shards"] = "tupelo-shards"
    version: Literal[2] = 2
    sequence_length: int = Field(ge=3)
    dtype: Literal["uint16", "uint32"]
    tokenizer: TokenizerRecord
    splits: dict[SplitName, SplitRecord]
    settings: dict[str, object]
    source: str
    licence: str
    cleaning: dict[str, int] = {}  # counts of what reading and cleaning changed or left out
    history: tuple[str, ...] = ()  # what was done to the sequences after they were built


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest as indented JSON."""
    save_text(folder / MANIFEST_FILE, manifest.model_dump_json(indent=2) + "\n")


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a shard folder.

    Raises:
        ShardError: It is missing, not JSON, of another version or format, or contradicts itself.
    """
    file = folder / MANIFEST_FILE
    try:
        return Manifest.model_validate_json(file.read_bytes())
    except OSError as error:
        raise ShardError(
            f"{file}: {(error.strerror or str(error)).lower()}; build the shards with "
            f"{shell_command('data', 'build')}, or name a folder that holds them"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = plain(".".join(map(str, first["loc"])) or "JSON")
        message = plain(first["msg"].removeprefix("Value error, "))
        raise ShardError(f"{file}: {place}: {message}; {REBUILD}") from error


def check_tokenizer(folder: Path, manifest: Manifest) -> None:
    """Check that the folder holds the tokenizer that made its sequences.

    Raises:
        ShardError: It does not.
    """
    file = folder / TOKENIZER_FILE
    try:
        sha256 = sha256_of(file)
    except OSError as error:
        raise ShardError(f"{file}: {(error.strerror or str(error)).lower()}; {REPAIR}") from error
    if sha256 != manifest.tokenizer.sha256:
        raise ShardError(f"{file}: not the tokenizer that made these shards; {REPAIR}")


def summary(manifest: Manifest) -> str:
    """Return a line for each split, each kind of cleaning and each later change."""
    lines = []
    total = sum(split.tokens for split in manifest.splits.values())
    for name, split in manifest.splits.items():
        known = f"{split.words:,} words, " if split.words else ""
        each = f" ({split.tokens / split.words:.2f} a word)" if split.words else ""
        files = f"{len(split.shards)} file{'s' if len(split.shards) > 1 else ''}"
        lines.append(
            f"  {name} ({split.tokens / max(1, total):.2%} of the tokens): "
            f"{split.documents:,} documents, {known}{split.tokens:,} tokens{each}, "
            f"{split.rows:,} sequences of {manifest.sequence_length} in {files} "
            f"({split.rows_dropped} dropped)"
        )
    lines += [f"  {what}: {number:,}" for what, number in manifest.cleaning.items()]
    lines += [f"  afterwards: {change}" for change in manifest.history]
    return "\n".join(lines)
