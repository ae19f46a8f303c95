"""Check a shard folder: structure, counts, sha256.

Reads every byte and compares it with the manifest. Exit status 1 if anything is damaged, missing or
contradictory.
"""

import argparse
from pathlib import Path

from data_prep.commands.options import add_options
from data_prep.files.progress_bar import progress_bar
from data_prep.shards.format import check_shard
from data_prep.shards.manifest import (
    REPAIR,
    ShardError,
    check_tokenizer,
    read_manifest,
    sha256_of,
    summary,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo data verify`."""
    add_options(parser, "folder")


def main(arguments: argparse.Namespace) -> int:
    """Print what is wrong, or a summary; return the exit status."""
    folder, problems = arguments.folder, verify(arguments.folder)
    print("\n".join(problems) or f"{folder}: fine\n{summary(read_manifest(folder))}")
    return 1 if problems else 0


def verify(folder: Path) -> list[str]:
    """Read everything and return each problem as one line; the list is empty if there is none.

    The bytes are read, not mapped: on a failing disk, reading raises an error that names the file,
    while a mapped page would kill the process.
    """
    problems = []
    try:
        manifest = read_manifest(folder)
    except ShardError as error:
        return [str(error)]
    try:
        check_tokenizer(folder, manifest)
    except ShardError as error:
        problems.append(str(error))
    records = [record for split in manifest.splits.values() for record in split.shards]
    total = sum(record.bytes for record in records)
    with progress_bar("verify", total, "B") as bar:
        for record in records:
            file = folder / record.file
            try:
                check_shard(file, record)
                if sha256_of(file) != record.sha256:
                    problems.append(
                        f"{file}: the content has changed since it was written; {REPAIR}"
                    )
            except ShardError as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{file}: cannot be read ({error.strerror}); {REPAIR}")
            bar.update(record.bytes)
    return problems
