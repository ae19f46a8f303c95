"""Convert the HDF5 shards of NVIDIA's BERT, bing_bert or 24hBERT.

    tupelo data import theirs/ --tokenizer vocab.txt --to data/theirs

Restores the words that static masking hid, drops copies that differ in their masks only, and packs
sequences for dynamic masking, of the length of theirs unless another is given. A document of the
new folder is the text of one sample, or of one segment of it: samples were shuffled and truncated
before they were written, so neighbours cannot be joined again.
"""

import argparse
import itertools
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np

from data_prep.command_line import add_setting
from data_prep.commands.options import FIELDS, add_options, read_settings
from data_prep.files.progress_bar import progress_bar
from data_prep.settings import BuildSettings
from data_prep.shards.external import DamagedShard, Ids, Samples, external_files, read_samples
from data_prep.shards.folders import complete_or_absent
from data_prep.shards.format import SequenceFormat, Tokens
from data_prep.shards.manifest import (
    TOKENIZER_FILE,
    Manifest,
    ShardError,
    SplitName,
    TokenizerRecord,
    summary,
    write_manifest,
)
from data_prep.shards.packing import (
    TOKENS_PER_GROUP,
    TokenStream,
    TokenWriter,
    documents_of,
    write_split,
)
from data_prep.text.deduplicate import Hashes, hashes_of, repetitions
from data_prep.text.sampling import EvenSample
from data_prep.tokenizer.describe import record_of
from data_prep.tokenizer.load import load_tokenizer, special_names_beside

SETTINGS = ("data.sequence_length", "data.valid_fraction", "data.damaged_files")
RECORDED = {"tokenizer", "valid_fraction", "damaged_files", "rows_per_shard"}
HASHES_AT_ONCE = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo data import`."""
    parser.add_argument(
        "places", nargs="+", type=Path, metavar="FILES_OR_FOLDER", help="HDF5 files with input_ids"
    )
    add_options(parser, "--to")
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="PLACE",
        help="that of these shards: a vocab.txt, a tokenizer.json, a folder with one, or a name on "
        "the Hugging Face Hub",
    )
    for name in SETTINGS:
        add_setting(parser, name, FIELDS[name])


def main(arguments: argparse.Namespace) -> None:
    """Write the new folder, and print a summary of it."""
    settings = read_settings(arguments, {"tokenizer": arguments.tokenizer})
    manifest = import_shards(arguments.places, arguments.to, settings)
    print(f"{arguments.to}\n{summary(manifest)}")


def import_shards(places: list[Path], to: Path, settings: BuildSettings) -> Manifest:
    """Write the text of external shards, unmasked, into a new shard folder.

    Copies of a text that differ in their masks only (a "dupe factor") are kept once. Whole texts
    are compared, by 128 bits of BLAKE2b; a copy that was truncated elsewhere is another text.
    Memory: about 100 MB, for the 2^20 texts of a bucket, up to 4 * 10^9 texts. The new folder
    temporarily holds the token ids three times.

    Args:
        places: HDF5 files, and folders of them.
        to: The new folder.
        settings: Their tokenizer, and how they are read and written; without a sequence_length it
            is that of the first sample.

    Raises:
        ShardError: A file cannot be read or has an unknown layout, the tokenizer does not fit, or a
            folder cannot be written.
        TokenizerError: The tokenizer cannot be loaded.
    """
    files = external_files(places)
    with complete_or_absent(to) as partial:
        scratch = partial / "scratch"
        scratch.mkdir()
        tokenizer, file = load_tokenizer(settings.tokenizer), partial / TOKENIZER_FILE
        tokenizer.save(str(file))
        names = special_names_beside(settings.tokenizer)
        record = record_of(tokenizer, file, kind="loaded", names=names)
        reader = _Reader(record, settings, scratch)
        texts = reader.read(files)
        is_given = "sequence_length" in settings.model_fields_set
        length = settings.sequence_length if is_given else reader.sample_length
        form = SequenceFormat(length, record)
        writers = {name: TokenWriter(scratch / name, record) for name in get_args(SplitName)}
        for name, text in reader.assigned(texts):
            writers[name].append(text)
        splits = {
            name: write_split(
                *(partial, name, writer.close(), form),
                longest=settings.rows_per_shard,
                counts={"documents": writer.documents, "tokens": writer.tokens, "words": None},
            )
            for name, writer in writers.items()
        }
        shutil.rmtree(scratch)
        size = sum(file.stat().st_size for file in files)
        manifest = Manifest(
            sequence_length=length,
            dtype=form.dtype,
            tokenizer=record,
            splits=splits,
            settings={"command": "import", **settings.model_dump(include=RECORDED)},
            source=f"{', '.join(map(str, places))} ({len(files)} HDF5 files, {size:,} bytes)",
            licence="that of the text in the imported files",
            cleaning=dict(+reader.counts),
            history=(f"import: static masking undone in {reader.counts['samples']:,} samples",),
        )
        write_manifest(partial, manifest)
    return manifest


class _Reader:
    """Reads external shards into one file of texts, with their hashes in a second file."""

    def __init__(self, record: TokenizerRecord, settings: BuildSettings, scratch: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.sample_length = 0
        self._record, self._settings, self._scratch = record, settings, scratch
        special = record.special_tokens
        self._sep_id, self._cls_id = special["sep"], special["cls"]
        # An id with several roles counts as the separator or [UNK], which may occur in text.
        self._not_text = np.zeros(record.vocabulary_size, bool)
        self._not_text[[special[name] for name in ("cls", "pad", "mask") if name in special]] = True
        self._not_text[[special[name] for name in ("sep", "unk") if name in special]] = False

    def read(self, files: list[Path]) -> TokenStream:
        """Return all texts as a stream."""
        writer = TokenWriter(self._scratch / "texts", self._record)
        with progress_bar("read samples", sum(file.stat().st_size for file in files), "B") as bar:
            for file in files:
                try:
                    for samples in read_samples(file, sep_id=self._sep_id):
                        self._refuse_other_ids(samples, file)
                        for text in self._texts(samples):
                            writer.append(text)
                        bar.update(file.stat().st_size * samples.share)
                except DamagedShard:
                    if self._settings.damaged_files == "stop":
                        raise
                    self.counts["skipped: damaged files, from the damage on"] += 1
        self.counts["texts"] = writer.documents
        return writer.close()

    def assigned(self, texts: TokenStream) -> Iterator[tuple[SplitName, Tokens]]:
        """Yield the texts that are kept, each with its split."""
        num_texts = self.counts["texts"]
        repeated = np.memmap(self._scratch / "repeated", np.bool_, "w+", shape=(num_texts + 1,))
        for places in repetitions(self._hashes(texts), num_texts, self._scratch / "buckets"):
            repeated[places] = True
        held_out, place = EvenSample(self._settings.valid_fraction), 0
        for number, text in enumerate(self._stored(texts)):
            if repeated[number]:
                self.counts["texts dropped: repeated"] += 1
                continue
            yield "valid" if held_out.takes(place) else "train", text
            place += 1

    def _hashes(self, texts: TokenStream) -> Iterator[Hashes]:
        contents = (text.tobytes() for text in self._stored(texts))
        while len(hashes := hashes_of(itertools.islice(contents, HASHES_AT_ONCE))):
            yield hashes

    def _stored(self, texts: TokenStream) -> Iterator[Tokens]:
        size = texts.num_tokens
        groups = (
            texts.read(first, min(first + TOKENS_PER_GROUP, size))
            for first in range(0, size, TOKENS_PER_GROUP)
        )
        return documents_of(itertools.chain.from_iterable(groups), self._sep_id)

    def _texts(self, samples: Samples) -> Iterator[Ids]:
        """Yield the texts of some samples."""
        self.counts["samples"] += len(samples.ids)
        self.sample_length = self.sample_length or samples.ids.shape[1]
        is_random = samples.is_random_next
        for number, (ids, length) in enumerate(zip(samples.ids, samples.lengths, strict=True)):
            body = ids[1 : length - 1]
            separators = np.flatnonzero(body == self._sep_id)
            if self._not_text[body].any() or (is_random is not None and len(separators) > 1):
                # NVIDIA's tokenizer encodes "[MASK]" in a text as the special token.
                self.counts["samples dropped: special tokens in their text"] += 1
                continue
            segments = np.split(body, separators)
            segments[1:] = [segment[1:] for segment in segments[1:]]
            if is_random is not None and not is_random[number]:
                segments = [np.concatenate(segments)]
            yield from filter(len, segments)

    def _refuse_other_ids(self, samples: Samples, file: Path) -> None:
        """Refuse samples that this tokenizer cannot have made."""
        ids, size = samples.ids, self._record.vocabulary_size
        ends = ids[np.arange(len(ids)), samples.lengths - 1]
        is_known = ids.min(initial=0) >= 0 and ids.max(initial=0) < size
        if not is_known or (ids[:, 0] != self._cls_id).any() or (ends != self._sep_id).any():
            raise ShardError(
                f"{file}: made with another tokenizer: its samples do not all have ids below "
                f"{size}, begin with {self._cls_id} and end with {self._sep_id}; give the "
                "tokenizer of these shards"
            )
