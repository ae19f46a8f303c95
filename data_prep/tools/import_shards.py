"""Convert pre-training shards of other programs into a shard folder.

A document of the new folder is the text of one sample, or of one segment of it. Samples were
shuffled and truncated before they were written, so neighbouring samples cannot be joined again.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.files.progress_bar import progress_bar
from data_prep.settings import DamagedFiles
from data_prep.shards.folders import complete_or_absent
from data_prep.shards.manifest import (
    TOKENIZER_FILE,
    Manifest,
    ShardError,
    SplitName,
    TokenizerRecord,
    write_manifest,
)
from data_prep.shards.packing import RowFormat, Tokens, documents_of
from data_prep.shards.repacking import (
    ROWS_PER_SHARD,
    CountedStream,
    DocumentFile,
    tokens_in_groups,
    write_by_split,
    write_splits,
)
from data_prep.text.deduplicate import Hashes, repetitions
from data_prep.text.sampling import EvenSample
from data_prep.tokenizer.describe import record_of
from data_prep.tokenizer.load import load_tokenizer, special_names_beside
from data_prep.tools.external_shards import DamagedShard, Ids, Samples, external_files, read_samples

HASH_BYTES = 16
HASHES_PER_READ = 1 << 16


class ImportSettings(NamedTuple):
    """How external shards become a shard folder."""

    tokenizer: str  # that of the external shards: a file, a folder, or a name on the Hub
    sequence_length: int | None = None  # tokens in a row; None: as in the first sample
    valid_fraction: float = 0.02  # share of the texts that is held out
    keep_duplicates: bool = False  # keep texts that repeat an earlier one
    damaged_files: DamagedFiles = "stop"  # "skip" keeps what precedes the damage
    rows_per_shard: int = ROWS_PER_SHARD  # upper bound


def import_shards(places: list[Path], to: Path, settings: ImportSettings) -> Manifest:
    """Write the text of external shards, unmasked, into a new shard folder.

    Copies of a text that differ in their masks only (a "dupe factor") are kept once. Whole texts
    are compared, by 128 bits of BLAKE2b; a copy that was truncated elsewhere is another text.
    Memory: about 100 MB, for the 2^20 texts of a bucket, up to 4 * 10^9 texts. The new folder
    temporarily holds the token ids three times.

    Args:
        places: HDF5 files, and folders of them.
        to: The new folder.
        settings: How they are read and written.

    Raises:
        ShardError: A file cannot be read or has an unknown layout, the tokenizer does not fit, or a
            folder cannot be written.
        TokenizerError: The tokenizer cannot be loaded.
    """
    files = external_files(places)
    with complete_or_absent(to) as partial:
        scratch = partial / "scratch"
        scratch.mkdir()
        tokenizer = load_tokenizer(settings.tokenizer)
        tokenizer.save(str(partial / TOKENIZER_FILE))
        record = record_of(
            tokenizer,
            partial / TOKENIZER_FILE,
            kind="loaded",
            names=special_names_beside(settings.tokenizer),
        )
        reader = _Reader(record, settings.damaged_files, scratch)
        texts = reader.read(files)
        row_format = RowFormat.of(record, settings.sequence_length or reader.sample_length)
        repeated = _repeated(texts, scratch, keep=settings.keep_duplicates)
        assigned = _assigned(texts, repeated, record, settings.valid_fraction, reader.counts)
        splits = write_splits(
            partial,
            write_by_split(assigned, scratch, row_format),
            row_format,
            rows_per_shard=settings.rows_per_shard,
        )
        shutil.rmtree(scratch)
        manifest = Manifest(
            sequence_length=row_format.sequence_length,
            dtype=row_format.dtype,
            tokenizer=record,
            splits=splits,
            settings={"command": "import", **settings._asdict()},
            source=_source(places, files),
            licence="that of the text in the imported files",
            cleaning=dict(+reader.counts),
            history=(f"import: static masking undone in {reader.counts['samples']:,} samples",),
        )
        write_manifest(partial, manifest)
    return manifest


class _Reader:
    """Reads external shards into one file of texts, with their hashes in a second file."""

    def __init__(self, record: TokenizerRecord, damaged_files: DamagedFiles, scratch: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.sample_length = 0
        self._record, self._damaged_files, self._scratch = record, damaged_files, scratch
        special = record.special_tokens
        self._sep_id, self._cls_id = special["sep"], special["cls"]
        # An id with several roles counts as the separator or [UNK], which may occur in text.
        self._not_text = np.zeros(record.vocabulary_size, bool)
        self._not_text[[special[name] for name in ("cls", "pad", "mask") if name in special]] = True
        self._not_text[[special[name] for name in ("sep", "unk") if name in special]] = False

    def read(self, files: list[Path]) -> CountedStream:
        """Return all texts as a stream."""
        row_format = RowFormat.of(self._record, 3)
        texts = DocumentFile(self._scratch / "texts.ids", row_format)
        total = sum(file.stat().st_size for file in files)
        with (
            progress_bar("read samples", total, "B") as bar,
            (self._scratch / "hashes").open("wb") as hashes,
        ):
            for file in files:
                size = file.stat().st_size
                for samples in self._samples_of(file):
                    for text in self._texts(samples, file):
                        small = text.astype(row_format.dtype)
                        texts.append(small)
                        hashes.write(hashlib.blake2b(small.data, digest_size=HASH_BYTES).digest())
                    bar.update(size * samples.share)
        self.counts["texts"] = texts.documents
        return texts.counted()

    def _samples_of(self, file: Path) -> Iterator[Samples]:
        try:
            yield from read_samples(file, sep_id=self._sep_id)
        except DamagedShard:
            if self._damaged_files == "stop":
                raise
            self.counts["skipped: damaged files, from the damage on"] += 1

    def _texts(self, samples: Samples, file: Path) -> Iterator[Ids]:
        """Yield the texts of some samples."""
        ids, lengths = samples.ids, samples.lengths
        self.counts["samples"] += len(ids)
        self.sample_length = self.sample_length or ids.shape[1]
        self._refuse_other_ids(samples, file)
        for number, (row, length) in enumerate(zip(ids, lengths.tolist(), strict=True)):
            body = row[1 : length - 1]
            separators = np.flatnonzero(body == self._sep_id)
            is_pair = samples.is_random_next is not None
            if self._not_text[body].any() or (is_pair and len(separators) > 1):
                # NVIDIA's tokenizer encodes "[MASK]" in a text as the special token.
                self.counts["samples dropped: special tokens in their text"] += 1
                continue
            segments = np.split(body, separators)
            segments[1:] = [segment[1:] for segment in segments[1:]]
            if samples.is_random_next is not None and not samples.is_random_next[number]:
                segments = [np.concatenate(segments)]
            yield from filter(len, segments)

    def _refuse_other_ids(self, samples: Samples, file: Path) -> None:
        """Refuse rows that this tokenizer cannot have made."""
        ids, lengths = samples.ids, samples.lengths
        size = self._record.vocabulary_size
        if ids.size and not 0 <= ids.min() <= ids.max() < size:
            worst = ids.min() if ids.min() < 0 else ids.max()
            raise _other_tokenizer(file, f"id {worst} is not in its vocabulary of {size}")
        ends = ids[np.arange(len(ids)), lengths - 1]
        for name, found, expected in (
            ("begin", ids[:, 0], self._cls_id),
            ("end", ends, self._sep_id),
        ):
            if (other := found[found != expected]).size:
                raise _other_tokenizer(file, f"samples {name} with id {other[0]}, not {expected}")


def _other_tokenizer(file: Path, reason: str) -> ShardError:
    return ShardError(
        f"{file}: made with another tokenizer ({reason}); give the tokenizer of these shards"
    )


def _repeated(texts: CountedStream, scratch: Path, *, keep: bool) -> NDArray[np.bool_]:
    """Return which texts repeat an earlier one [n], as flags in a file."""
    flags = np.memmap(scratch / "repeated", np.bool_, "w+", shape=(max(1, texts.documents),))
    if not keep:
        for places in repetitions(_hashes(scratch), texts.documents, scratch / "buckets"):
            flags[places] = True
    return flags


def _hashes(scratch: Path) -> Iterator[Hashes]:
    with (scratch / "hashes").open("rb") as stream:
        while digests := stream.read(HASHES_PER_READ * HASH_BYTES):
            yield np.frombuffer(digests, np.uint64).reshape(-1, 2)


def _assigned(
    texts: CountedStream,
    repeated: NDArray[np.bool_],
    record: TokenizerRecord,
    valid_fraction: float,
    counts: Counter[str],
) -> Iterator[tuple[SplitName, Tokens]]:
    """Yield the texts that are kept, each with its split."""
    held_out, place = EvenSample(valid_fraction), 0
    pieces: Iterable[Tokens] = tokens_in_groups(texts.stream)
    documents = documents_of(pieces, record.special_tokens["sep"])
    for number, document in enumerate(documents):
        if repeated[number]:
            counts["texts dropped: repeated"] += 1
            continue
        yield "valid" if held_out.takes(place) else "train", document
        place += 1


def _source(places: list[Path], files: list[Path]) -> str:
    size = sum(file.stat().st_size for file in files)
    return f"{', '.join(map(str, places))} ({len(files)} HDF5 files, {size:,} bytes)"
