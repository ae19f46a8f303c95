"""Read every byte of a shard folder and report damage.

Memory is bounded by one group of rows. The bytes are read, not mapped: on a failing disk, reading
raises an error that names the file, while a mapped page would kill the process.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_prep.files.progress_bar import progress_bar
from data_prep.shards.format import Rows, ShardHeader, check_shard
from data_prep.shards.manifest import (
    MANIFEST_FILE,
    REBUILD,
    REPAIR,
    Manifest,
    ShardError,
    ShardRecord,
    SplitRecord,
    TokenizerRecord,
    check_counts,
    check_tokenizer,
    read_manifest,
)

if TYPE_CHECKING:
    from data_prep.files.progress_bar import Bar

BYTES_PER_READ = 4 << 20
BYTES_WITHOUT_BAR = 256 << 20  # about a second's work


def verify(folder: Path) -> list[str]:
    """Read everything and return each problem as one line; the list is empty if there is none."""
    try:
        manifest = read_manifest(folder)
    except ShardError as error:
        return [str(error)]
    problems = []
    for check in (check_tokenizer, check_counts):
        try:
            check(folder, manifest)
        except ShardError as error:
            problems.append(str(error))
    size, dtype = manifest.tokenizer.vocabulary_size, manifest.dtype
    if size > np.iinfo(dtype).max + 1:
        problems.append(f"{folder / MANIFEST_FILE}: {dtype} cannot hold {size} ids; {REBUILD}")
    files = [(record, split) for split in manifest.splits.values() for record in split.shards]
    total = sum(record.bytes for record, _ in files)
    with progress_bar("verify", total, "B", shown=total > BYTES_WITHOUT_BAR) as bar:
        for record, split in files:
            before = bar.n
            try:
                _check_file(folder / record.file, record, split, manifest, bar)
            except ShardError as error:
                problems.append(str(error))
            bar.update(record.bytes - (bar.n - before))
    return problems


def _check_file(
    file: Path, record: ShardRecord, split: SplitRecord, manifest: Manifest, bar: "Bar"
) -> None:
    header = check_shard(file, record, manifest)
    if record.rows != split.rows_per_shard:
        raise ShardError(f"{file}: {record.rows} rows instead of {split.rows_per_shard}; {REPAIR}")
    try:
        digest, problem = _read(file, header, manifest.tokenizer, bar)
    except OSError as error:
        raise ShardError(f"{file}: cannot be read ({error.strerror}); {REPAIR}") from error
    if digest != record.sha256:
        raise ShardError(f"{file}: the content has changed since it was written; {REPAIR}")
    if problem:
        raise ShardError(f"{file}: holds {problem}; {REPAIR}")


def _read(
    file: Path, header: ShardHeader, tokenizer: TokenizerRecord, bar: "Bar"
) -> tuple[str, str | None]:
    """Read a file once; return its sha256 and the first problem of its rows."""
    digest, problem = hashlib.sha256(), None
    num_rows, sequence_length = header.shape
    row_bytes = sequence_length * np.dtype(header.dtype).itemsize
    per_read = max(1, BYTES_PER_READ // row_bytes)
    with file.open("rb") as stream:
        digest.update(stream.read(header.offset or 0))
        for first in range(0, num_rows, per_read):
            content = stream.read(min(per_read, num_rows - first) * row_bytes)
            digest.update(content)
            whole = content[
                : len(content) // row_bytes * row_bytes
            ]  # the file may shrink while it is read
            rows = np.frombuffer(whole, header.dtype).reshape(-1, sequence_length)
            problem = problem or _row_problem(rows, tokenizer)
            bar.update(len(content))
        while content := stream.read(BYTES_PER_READ):
            digest.update(content)
    return digest.hexdigest(), problem


def _row_problem(rows: Rows, tokenizer: TokenizerRecord) -> str | None:
    """Return what is wrong with rows [n, S], if anything."""
    special = tokenizer.special_tokens
    if rows.size and rows.max() >= tokenizer.vocabulary_size:
        return "ids beyond the vocabulary"
    if (rows[:, 0] != special["cls"]).any() or (rows[:, -1] != special["sep"]).any():
        return "rows that are not [CLS] ... [SEP]"
    body = rows[:, 1:-1]
    # One id may have several roles: a [CLS] that is also the separator may occur anywhere.
    allowed = {special["sep"], special.get("unk")}
    for name in ("cls", "pad", "mask"):
        token = special.get(name)
        if token is not None and token not in allowed and (body == token).any():
            return f"[{name.upper()}] inside a row"
    return None
