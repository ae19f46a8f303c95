"""Hold out other documents of a finished shard folder."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np

from data_prep.files.progress_bar import progress_bar
from data_prep.shards.folders import complete_or_absent
from data_prep.shards.format import ShardSet, open_shards
from data_prep.shards.manifest import TOKENIZER_FILE, Manifest, SplitName, write_manifest
from data_prep.shards.packing import (
    SEQUENCES_PER_SHARD,
    TOKENS_PER_GROUP,
    SequenceFormat,
    Tokens,
    documents_of,
    unpack,
    write_splits,
)
from data_prep.text.sampling import EvenSample


def hold_out_again(
    folder: Path,
    to: Path,
    *,
    valid_fraction: float,
    rows_per_shard: int = SEQUENCES_PER_SHARD,
) -> Manifest:
    """Write the documents of a shard folder into a new one that holds out others.

    All documents, training ones first, are numbered in order; an even sample of them is held out.
    A repetition of a document, as a weight above 1 makes, goes where the first copy goes; only one
    that is cut short where the old sequences end is not known as such. Text that the old sequences
    left out stays out. They are read twice, and memory grows by about 0.1 KB for each document of
    the sample.

    Args:
        folder: A shard folder, with or without held-out sequences.
        to: The new folder.
        valid_fraction: Share of the documents that is held out, in (0, 0.5].
        rows_per_shard: Most sequences in one file.

    Raises:
        ShardError: A folder cannot be read or written, or a split does not fill a sequence.
    """
    shards = open_shards(folder)
    manifest = shards.manifest
    form = SequenceFormat.of(manifest.tokenizer, manifest.sequence_length)
    with complete_or_absent(to) as partial:
        assigned = _assigned(shards, EvenSample(valid_fraction))
        splits = write_splits(partial, assigned, form, longest=rows_per_shard)
        shutil.copyfile(shards.tokenizer_path, partial / TOKENIZER_FILE)
        line = f"split: {valid_fraction:g} of all documents held out anew"
        command = {"command": "split", "valid_fraction": valid_fraction, "of": manifest.settings}
        history = (*manifest.history, line)
        changed = {"splits": splits, "dtype": form.dtype, "settings": command, "history": history}
        new = manifest.model_copy(update=changed)
        write_manifest(partial, new)
    return new


def _assigned(shards: ShardSet, sample: EvenSample) -> Iterator[tuple[SplitName, Tokens]]:
    """Yield each document with its split."""
    sampled = {
        _digest(document)
        for place, document in enumerate(_all_documents(shards, "sample documents"))
        if sample.takes(place)
    }
    held_out: dict[bytes, bool] = {}  # whether the first copy is; of all others no copy is
    for place, document in enumerate(_all_documents(shards, "read documents")):
        digest = _digest(document)
        if digest in sampled:
            held_out.setdefault(digest, sample.takes(place))
        yield "valid" if held_out.get(digest) else "train", document


def _digest(document: Tokens) -> bytes:
    return hashlib.blake2b(document.tobytes(), digest_size=16).digest()


def _all_documents(shards: ShardSet, purpose: str) -> Iterator[Tokens]:
    """Yield the documents of the training sequences, then those of the others."""
    manifest = shards.manifest
    total = sum(split.rows for split in manifest.splits.values())
    at_once = max(1, TOKENS_PER_GROUP // manifest.sequence_length)
    with progress_bar(purpose, total, "sequence") as bar:

        def tokens(name: SplitName) -> Iterator[Tokens]:
            split = shards.split(name)
            for first in range(0, split.num_sequences, at_once):
                numbers = np.arange(first, min(first + at_once, split.num_sequences))
                yield unpack(split.read(numbers))
                bar.update(len(numbers))

        for name in (name for name in get_args(SplitName) if name in manifest.splits):
            yield from documents_of(tokens(name), manifest.tokenizer.special_tokens["sep"])
