"""Read every byte of a shard folder and report damage.

Memory is bounded by one group of rows. The bytes are read, not mapped: on a failing disk, reading
raises an error that names the file, while a mapped page would kill the process.
"""

import hashlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_prep.files.progress_bar import progress_bar
from data_prep.shards.format import Rows, ShardHeader, check_shard, read_header
from data_prep.shards.manifest import (
    MANIFEST_FILE,
    REBUILD,
    REPAIR,
    TOKENIZER_FILE,
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

# Files that the commands of this package put beside the shards.
COMPANIONS = {MANIFEST_FILE, TOKENIZER_FILE, "skipped.jsonl"}


def verify(folder: Path) -> list[str]:
    """Read everything and return each problem as one line; the list is empty if there is none."""
    try:
        manifest = read_manifest(folder)
    except ShardError as error:
        return [str(error)]
    return [*folder_problems(folder, manifest), *broken_shards(folder, manifest).values()]


def folder_problems(folder: Path, manifest: Manifest) -> list[str]:
    """Return the problems of the tokenizer, of the manifest, and between files."""
    problems = []
    for check in (check_tokenizer, check_counts):
        try:
            check(folder, manifest)
        except ShardError as error:
            problems.append(str(error))
    file, tokenizer = folder / MANIFEST_FILE, manifest.tokenizer
    if tokenizer.vocabulary_size > np.iinfo(manifest.dtype).max + 1:
        problems.append(
            f"{file}: {manifest.dtype} cannot hold {tokenizer.vocabulary_size} ids; {REBUILD}"
        )
    return problems + _mixed_formats(folder, manifest)


def broken_shards(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Read every file and return the problems by name of the file, each as one line."""
    broken: dict[str, str] = {}
    splits = manifest.splits.values()
    total = sum(record.bytes for split in splits for record in split.shards)
    with progress_bar("verify", total, "B", shown=total > BYTES_WITHOUT_BAR) as bar:
        for split in splits:
            for record in split.shards:
                before = bar.n
                try:
                    _check_file(folder / record.file, record, split, manifest, bar)
                except ShardError as error:
                    broken[record.file] = str(error)
                bar.update(record.bytes - (bar.n - before))
    return broken


def unnamed_files(folder: Path, manifest: Manifest) -> list[str]:
    """Return a line for each entry of the folder that the manifest does not name."""
    named = {record.file for split in manifest.splits.values() for record in split.shards}
    others = {file.name for file in folder.iterdir()} - named - COMPANIONS
    return [f"{folder / name}: not named in {MANIFEST_FILE}" for name in sorted(others)]


def _mixed_formats(folder: Path, manifest: Manifest) -> list[str]:
    """Return the properties that differ between files and should not."""
    lengths: Counter[str] = Counter()
    tokenizers: Counter[str] = Counter()
    for split in manifest.splits.values():
        for record in split.shards:
            try:
                header = read_header(folder / record.file)
            except ShardError:
                continue  # `broken_shards` reports it
            lengths[str(header.shape[-1]) if header.shape else "none"] += 1
            tokenizers[header.tokenizer_sha256[:12]] += 1
    return [
        f"{folder}: mixes files of {len(counts)} {what}: "
        + ", ".join(f"{value} ({number} files)" for value, number in counts.most_common())
        + f"; {REPAIR}"
        for what, counts in (("sequence lengths", lengths), ("tokenizers", tokenizers))
        if len(counts) > 1
    ]


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
