"""The parts in which a build works: what a worker does with one, and how that is written down.

A segment is some megabytes of consecutive documents of one source. Each step writes its files and
then, at last, a record; a step whose record exists is never done again. What ends up in the shards
does not depend on where a segment begins or ends.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from data_prep.files.atomic import save_text
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import SplitName, TokenizerRecord
from data_prep.shards.packing import TokenFile, id_type, write_documents
from data_prep.sources.source import Parsed, Position, RawDocument, Skipped, Source
from data_prep.text.cleaning import clean
from data_prep.text.deduplicate import Hashes, hashes_of
from data_prep.text.encode import DocumentEncoder, text_pieces
from data_prep.text.sampling import Share
from data_prep.tokenizer.train import character_counts

SEGMENT_BYTES = 8 << 20  # of the source, as it comes: bounds the memory of a worker
TOKENIZER_RECORD = "tokenizer.json"  # in the workplace: what the manifest will say of it
PLACES_PER_REASON = 1000  # of what was skipped, in the list for people


class Record(BaseModel):
    """Something that is written down when a step is done."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def save(self, file: Path) -> None:
        """Write the record, complete or not at all."""
        save_text(file, self.model_dump_json())

    @classmethod
    def load(cls, file: Path) -> Self | None:
        """Return a record, or None if there is none."""
        return cls.model_validate_json(file.read_bytes()) if file.is_file() else None


class Counts(Record):
    """What a number of documents amounts to."""

    documents: int = 0
    words: int = 0
    sentences: int = 0
    tokens: int = 0  # without separators

    def plus(self, other: "Counts", times: int = 1) -> "Counts":
        """Return the sum with `times` the other."""
        return Counts(
            documents=self.documents + times * other.documents,
            words=self.words + times * other.words,
            sentences=self.sentences + times * other.sentences,
            tokens=self.tokens + times * other.tokens,
        )


class ReadSegment(Record):
    """A segment whose text was read and cleaned."""

    source: int
    end: Position  # where the source goes on
    num_raw: int  # raw documents of this source that were seen so far
    read_bytes: int  # bytes of this source that were read so far
    is_last: bool  # of this source
    documents: int
    paragraphs: int
    words: int
    characters: int
    cleaning: dict[str, int]
    skipped: tuple[Skipped, ...]


class EncodedSegment(Record):
    """A segment whose token ids were written: training, once more in part, and held out."""

    train: Counts
    repeated: Counts  # the documents of the last, incomplete repetition of a weight such as 2.5
    valid: Counts


class SegmentFiles(NamedTuple):
    """Where the files of one segment are."""

    workplace: Path
    number: int

    def path(self, kind: str) -> Path:
        """Return the name of the file of one kind, such as "text" or "train.ids"."""
        return self.workplace / "segments" / f"{self.number:06d}.{kind}"

    def write_text(self, documents: list[list[str]]) -> None:
        """Write one paragraph a line, an empty line after each document."""
        text = "".join("\n".join([*paragraphs, "\n"]) for paragraphs in documents)
        self.path("text").write_text(text, encoding="utf-8", newline="\n")

    def read_text(self) -> list[list[str]]:
        """Return what `write_text` wrote."""
        with self.path("text").open(encoding="utf-8", newline="\n") as stream:
            documents = stream.read().split("\n\n")[:-1]
        return [document.split("\n") for document in documents]

    def kept_text(self) -> tuple[list[list[str]], list[int]]:
        """Return what de-duplication left of each document, and its number of words."""
        with np.load(self.path("counts.npz")) as counts:
            keep, words = np.load(self.path("keep.npy")).tolist(), counts["words"].tolist()
        documents, num_words, place = [], [], 0
        for paragraphs in self.read_text():
            end = place + len(paragraphs)
            kept = [paragraphs[i - place] for i in range(place, end) if keep[i]]
            if kept:
                documents.append(kept)
                num_words.append(sum(words[i] for i in range(place, end) if keep[i]))
            place = end
        return documents, num_words

    def write_counts(self, documents: list[list[str]], *, hashed: bool) -> NDArray[np.uint32]:
        """Write, and return, the words of each paragraph, beside what de-duplication needs."""
        words = np.array([len(text.split()) for text in _flat(documents)], np.uint32)
        none: Hashes = np.empty((0, 2), np.uint64)
        np.savez(
            self.path("counts.npz"),
            words=words,
            paragraphs=np.array([len(document) for document in documents], np.uint32),
            paragraph_hashes=hashes_of(_flat(documents)) if hashed else none,
            document_hashes=hashes_of(map("\n".join, documents)) if hashed else none,
        )
        return words


class ReadTask(NamedTuple):
    """A segment to be read: raw documents, and where they come from."""

    files: SegmentFiles
    source_number: int
    source: Source
    raw: list[RawDocument | Skipped]
    settings: BuildSettings
    end: Position = Position(0, 0)
    num_raw: int = 0
    num_left_out: int = 0  # for a weight below 1
    read_bytes: int = 0
    is_last: bool = False

    def run(self) -> ReadSegment:
        """Parse and clean the documents and write their text."""
        counts = Counter({"documents left out: weight below 1": self.num_left_out})
        skipped: list[Skipped] = []
        documents = list(self._documents(counts, skipped))
        self.files.write_text(documents)
        words = self.files.write_counts(documents, hashed=self.settings.deduplicate != "none")
        record = ReadSegment(
            source=self.source_number,
            end=self.end,
            num_raw=self.num_raw,
            read_bytes=self.read_bytes,
            is_last=self.is_last,
            documents=len(documents),
            paragraphs=len(words),
            words=int(words.sum()),
            characters=sum(map(len, _flat(documents))),
            cleaning=+counts,
            skipped=_first_of_each_reason(skipped),
        )
        record.save(self.files.path("read.json"))
        return record

    def _documents(self, counts: Counter[str], skipped: list[Skipped]) -> Iterator[list[str]]:
        for raw in self.raw:
            parsed = Parsed([], [raw]) if isinstance(raw, Skipped) else self.source.parse(raw)
            for place in parsed.skipped:
                counts[f"skipped: {place.reason}"] += 1
                skipped.append(place)
            if isinstance(raw, RawDocument) and raw.cut:
                counts["documents cut in parts: too long"] += 1
            if paragraphs := clean(parsed.paragraphs, self.settings, counts):
                yield paragraphs


class SampleTask(NamedTuple):
    """A segment from which a tokenizer learns."""

    files: SegmentFiles
    settings: BuildSettings
    first_document: int  # among the documents that are kept
    every: int  # so many training documents, one is taken

    def run(self) -> Path:
        """Write the sentences that the tokenizer is trained on, and count their characters."""
        file = self.files.path("sample")
        if file.is_file():
            return file
        documents, _ = self.files.kept_text()
        valid = Share(self.settings.valid_fraction)
        held_out = valid.taken(self.first_document, len(documents))
        place = self.first_document - valid.num_taken_before(self.first_document)
        sample: list[str] = []
        for document, is_held_out in zip(documents, held_out.tolist(), strict=True):
            if not is_held_out:
                if place % self.every == 0:
                    sample += pieces_of(document, self.settings)
                place += 1
        counts = character_counts(sample, lowercase=self.settings.lowercase)
        save_text(self.files.path("characters.json"), json.dumps(counts))
        save_text(file, "".join(f"{piece}\n" for piece in sample))
        return file


class EncodeTask(NamedTuple):
    """A segment to be turned into token ids."""

    files: SegmentFiles
    settings: BuildSettings
    first_document: int
    weight: float
    encoder: DocumentEncoder
    tokenizer: TokenizerRecord

    def run(self) -> EncodedSegment:
        """Encode the documents and write their ids, training and held-out apart."""
        documents, words = self.files.kept_text()
        encoded = self.encoder.encode(documents)
        held_out = Share(self.settings.valid_fraction).taken(self.first_document, len(documents))
        again = Share(self.weight % 1).taken(self.first_document, len(documents))
        if self.weight < 1:
            again[:] = False  # the documents that it leaves out were never read
        chosen = {"train": ~held_out, "repeated": ~held_out & again, "valid": held_out}
        counts = {}
        for name, mask in chosen.items():
            places = np.flatnonzero(mask).tolist()
            counts[name] = Counts(
                documents=len(places),
                words=sum(words[place] for place in places),
                sentences=sum(encoded[place].num_sentences for place in places),
                tokens=sum(len(encoded[place].ids) for place in places),
            )
            write_documents(
                self.files.path(f"{name}.ids"),
                (encoded[place].ids for place in places),
                self.tokenizer.special_tokens["sep"],
                id_type(self.tokenizer.vocabulary_size),
            )
        record = EncodedSegment(**counts)
        record.save(self.files.path("encoded.json"))
        self.files.path("text").unlink()  # on a disk it takes twice the room of the ids
        return record


def pieces_of(document: list[str], settings: BuildSettings) -> list[str]:
    """Return the sentences of a document as the tokenizer gets them."""
    return text_pieces(
        document,
        splitter=settings.sentences,
        language=settings.language,
        moses=settings.language if settings.moses else None,
    )


def token_files(
    files: Iterable[SegmentFiles],
    records: Iterable[EncodedSegment],
    weights: Iterable[float],
    name: SplitName,
) -> tuple[TokenFile, ...]:
    """Return the token files of a split in order: the whole text, then its repetitions."""
    segments = list(zip(files, records, weights, strict=True))
    if name == "valid":
        return tuple(_token_file(place, "valid", record.valid) for place, record, _ in segments)
    found = []
    for repetition in range(max(1, *(-int(-weight // 1) for *_, weight in segments))):
        for place, record, weight in segments:
            if repetition == 0 or weight >= repetition + 1:
                found.append(_token_file(place, "train", record.train))
            elif weight > repetition:
                found.append(_token_file(place, "repeated", record.repeated))
    return tuple(found)


def _token_file(files: SegmentFiles, name: str, counts: Counts) -> TokenFile:
    return TokenFile(files.path(f"{name}.ids"), counts.tokens + counts.documents)


def _flat(documents: list[list[str]]) -> Iterator[str]:
    for document in documents:
        yield from document


def _first_of_each_reason(skipped: list[Skipped]) -> tuple[Skipped, ...]:
    seen: Counter[str] = Counter()
    first = []
    for place in skipped:
        seen[place.reason] += 1
        if seen[place.reason] <= PLACES_PER_REASON:
            first.append(place)
    return tuple(first)
