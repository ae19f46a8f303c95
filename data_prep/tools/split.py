"""Hold out other documents of a finished shard folder."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from data_prep.files.progress_bar import progress_bar
from data_prep.shards.folders import complete_or_absent
from data_prep.shards.format import ShardSet, open_shards
from data_prep.shards.manifest import TOKENIZER_FILE, Manifest, SplitName, write_manifest
from data_prep.shards.packing import RowFormat, Tokens
from data_prep.shards.repacking import ROWS_PER_SHARD, write_by_split, write_splits
from data_prep.shards.unpacking import StoredDocument, row_bytes, stored_documents
from data_prep.text.sampling import EvenSample


def hold_out_again(
    folder: Path,
    to: Path,
    *,
    valid_fraction: float,
    rows_per_shard: int = ROWS_PER_SHARD,
) -> Manifest:
    """Write the documents of a shard folder into a new one that holds out others.

    All documents, training ones first, are numbered in order; an even sample of them is held out.
    A repetition of a document, as a weight above 1 makes, goes where the first copy goes; only one
    that is cut short where the old rows end is not known as such. Text that the old rows left out
    stays out, and a document that was cut where they end stays cut; the history in the manifest
    gives the number of tokens in such documents. The rows are read twice, and memory grows by about
    0.1 KB for each document of the sample.

    Args:
        folder: A shard folder, with or without held-out rows.
        to: The new folder.
        valid_fraction: Share of the documents that is held out, in (0, 0.5].
        rows_per_shard: Upper bound of the rows in one file.

    Raises:
        ShardError: A folder cannot be read or written, or a split does not fill a row.
    """
    shards = open_shards(folder)
    manifest = shards.manifest
    row_format = RowFormat.of(manifest.tokenizer, manifest.sequence_length)
    cut: list[int] = []
    with complete_or_absent(to) as partial:
        scratch = partial / "scratch"
        scratch.mkdir()
        assigned = _assigned(shards, EvenSample(valid_fraction), cut)
        counted = write_by_split(assigned, scratch, row_format)
        splits = write_splits(partial, counted, row_format, rows_per_shard=rows_per_shard)
        shutil.rmtree(scratch)
        shutil.copyfile(shards.tokenizer_path, partial / TOKENIZER_FILE)
        line = (
            f"split: {valid_fraction:g} of all documents held out anew; {len(cut)} documents with "
            f"{sum(cut):,} tokens stood where rows ended and may be cut short"
        )
        new = manifest.model_copy(
            update={
                "splits": splits,
                "dtype": row_format.dtype,
                "settings": {
                    "command": "split",
                    "valid_fraction": valid_fraction,
                    "of": manifest.settings,
                },
                "history": (*manifest.history, line),
            }
        )
        write_manifest(partial, new)
    return new


def _all_documents(shards: ShardSet, purpose: str) -> Iterator[StoredDocument]:
    names: tuple[SplitName, ...] = ("train", "valid")
    present = [name for name in names if name in shards.manifest.splits]
    total = row_bytes(shards.manifest)
    with progress_bar(purpose, total, "B") as bar:
        for name in present:
            yield from stored_documents(shards, name, bar)


def _assigned(
    shards: ShardSet, sample: EvenSample, cut: list[int]
) -> Iterator[tuple[SplitName, Tokens]]:
    """Yield each document with its split, and append the lengths of those that may be cut."""
    sampled = {
        _digest(document)
        for place, document in enumerate(_all_documents(shards, "sample documents"))
        if sample.takes(place)
    }
    held_out: dict[bytes, bool] = {}  # whether the first copy is; of all others no copy is
    for place, document in enumerate(_all_documents(shards, "read documents")):
        if document.may_be_cut:
            cut.append(len(document.ids))
        digest = _digest(document)
        if digest in sampled:
            held_out.setdefault(digest, sample.takes(place))
        yield "valid" if held_out.get(digest) else "train", document.ids


def _digest(document: StoredDocument) -> bytes:
    return hashlib.blake2b(document.ids.tobytes(), digest_size=16).digest()
