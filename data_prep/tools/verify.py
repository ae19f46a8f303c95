"""Read every byte of a shard folder and report damage.

The bytes are read, not mapped: on a failing disk, reading raises an error that names the file,
while a mapped page would kill the process.
"""

import hashlib
from pathlib import Path

from data_prep.files.progress_bar import Bar, progress_bar
from data_prep.shards.format import check_shard
from data_prep.shards.manifest import (
    REPAIR,
    Manifest,
    ShardError,
    ShardRecord,
    check_counts,
    check_tokenizer,
    read_manifest,
)

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
    records = [record for split in manifest.splits.values() for record in split.shards]
    total = sum(record.bytes for record in records)
    with progress_bar("verify", total, "B", shown=total > BYTES_WITHOUT_BAR) as bar:
        for record in records:
            try:
                _check_file(folder / record.file, record, manifest, bar)
            except ShardError as error:
                problems.append(str(error))
    return problems


def _check_file(file: Path, record: ShardRecord, manifest: Manifest, bar: Bar) -> None:
    check_shard(file, record, manifest)
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while content := stream.read(BYTES_PER_READ):
                digest.update(content)
                bar.update(len(content))
    except OSError as error:
        raise ShardError(f"{file}: cannot be read ({error.strerror}); {REPAIR}") from error
    if digest.hexdigest() != record.sha256:
        raise ShardError(f"{file}: the content has changed since it was written; {REPAIR}")
