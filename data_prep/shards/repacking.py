"""Write shards from documents that are token ids already: for split and import."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from data_prep.files.progress_bar import progress_bar
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import ShardError, SplitName, SplitRecord
from data_prep.shards.packing import (
    SequenceFormat,
    Tokens,
    TokenWriter,
    shard_tasks,
    split_record,
)

SEQUENCES_PER_SHARD: int = BuildSettings.model_fields["rows_per_shard"].default


def write_splits(
    folder: Path,
    documents: Iterable[tuple[SplitName, Tokens]],
    form: SequenceFormat,
    *,
    longest: int,
) -> dict[SplitName, SplitRecord]:
    """Pack documents, each with the name of its split, and write the files of both splits.

    Args:
        folder: The shard folder; it temporarily holds the token ids too.
        documents: In order.
        form: Of the sequences.
        longest: Most sequences in one file.

    Raises:
        ShardError: A split does not fill a single sequence.
    """
    scratch = folder / "tokens"
    scratch.mkdir()
    names: tuple[SplitName, ...] = ("train", "valid")
    writers = {name: TokenWriter(scratch / name, form.tokenizer) for name in names}
    for name, document in documents:
        writers[name].append(document)
    splits = {}
    with progress_bar("write tokens", sum(w.tokens for w in writers.values()), "token") as bar:
        for name, writer in writers.items():
            tasks = shard_tasks(name, writer.close(), form, longest=longest)
            if not tasks:
                raise ShardError(
                    f"the {name} split has {writer.tokens:,} tokens in {writer.documents:,} "
                    f"documents, too few for one sequence of {form.sequence_length}; use more "
                    "text, a shorter sequence_length or another share"
                )
            shards = []
            for task in tasks:
                shards.append(task.write(folder))
                bar.update(task.num_sequences * (form.sequence_length - 2))
            counts = {"documents": writer.documents, "tokens": writer.tokens}
            splits[name] = split_record(tasks, shards, words=None, sentences=None, **counts)
    shutil.rmtree(scratch)
    return splits
