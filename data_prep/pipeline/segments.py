"""Segments of a build: what a worker does with one, and how the result is stored.

A segment is some megabytes of consecutive documents of one source. Each step writes its files and
then its result; a step whose result exists is never repeated. The shards do not depend on where
segments begin and end.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from data_prep.files.atomic import save_text
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import TokenizerRecord
from data_prep.shards.packing import id_type, write_documents
from data_prep.sources.source import EXPECTED_SKIPS, Parsed, Position, RawDocument, Skipped, Source
from data_prep.text.cleaning import clean
from data_prep.text.deduplicate import Hashes, hashes_of
from data_prep.text.encode import DocumentEncoder, EncodedDocument, text_pieces
from data_prep.text.sampling import EvenSample
from data_prep.tokenizer.train import character_counts

SEGMENT_BYTES = 8 << 20  # of the undecoded source: bounds the memory of a worker
TOKENIZER_RECORD = "tokenizer.json"  # in the working folder: the record for the manifest
SKIPPED = "skipped: "  # in counts of cleaning, before the reason
PLACES_PER_REASON = 1000  # entries of skipped.jsonl for each reason


class StepResult(BaseModel):
    """The result of a step, saved as JSON when the step is complete."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def save(self, file: Path) -> None:
        """Write the result, complete or not at all."""
        save_text(file, self.model_dump_json())

    @classmethod
    def load(cls, file: Path) -> Self | None:
        """Return the result, or None if there is none."""
        return cls.model_validate_json(file.read_bytes()) if file.is_file() else None


class TextCounts(StepResult):
    """Counts of some documents."""

    documents: int = 0
    words: int = 0
    sentences: int = 0
    tokens: int = 0  # without separators

    def plus(self, other: "TextCounts", times: int = 1) -> "TextCounts":
        """Return the sum with `times` the other."""
        return TextCounts(
            documents=self.documents + times * other.documents,
            words=self.words + times * other.words,
            sentences=self.sentences + times * other.sentences,
            tokens=self.tokens + times * other.tokens,
        )


class ReadSegment(StepResult):
    """A segment whose text was read and cleaned."""

    source: int
    end: Position  # where the source continues
    num_raw: int  # raw documents of this source so far
    read_bytes: int  # bytes of this source so far
    is_last: bool  # of this source
    documents: int
    paragraphs: int
    words: int
    characters: int
    cleaning: dict[str, int]
    skipped: tuple[Skipped, ...]
    units: int  # lines or documents, see `Source.unit`
    units_skipped: int  # without those that the source expects to skip


class KeptSegment(StepResult):
    """What is kept of a segment."""

    first_document: int  # its number among all kept documents
    documents: int
    cleaning: dict[str, int]


class EncodedSegment(StepResult):
    """A segment whose token ids were written: training, partial repetition, held-out."""

    train: TextCounts
    repeated: TextCounts  # the documents of the partial pass of a weight such as 2.5
    valid: TextCounts
    unknown: int  # tokens of train that are [UNK]


class SegmentFiles(NamedTuple):
    """The files of one segment."""

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
        """Return the documents of `write_text`."""
        with self.path("text").open(encoding="utf-8", newline="\n") as stream:
            documents = stream.read().split("\n\n")[:-1]
        return [document.split("\n") for document in documents]

    def kept_text(self) -> tuple[list[list[str]], list[int]]:
        """Return the kept paragraphs of each document, and its number of words."""
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
        """Write the words of each paragraph and the hashes for de-duplication; return the words."""
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


class Segment(NamedTuple):
    """A segment whose text was read and whose repetitions were found."""

    files: SegmentFiles
    read: ReadSegment
    kept: KeptSegment
    weight: float


class ReadTask(NamedTuple):
    """A segment to read: raw documents, and the state of their source."""

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
        num_read = 0
        documents = []
        for parsed in self._parsed(counts, skipped):
            num_read += len(parsed) if self.source.unit == "lines" else 1
            if paragraphs := clean(parsed, counts):
                documents.append(paragraphs)
        num_skipped = sum(place.reason not in EXPECTED_SKIPS for place in skipped)
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
            units=num_read + num_skipped,
            units_skipped=num_skipped,
        )
        record.save(self.files.path("read.json"))
        return record

    def _parsed(self, counts: Counter[str], skipped: list[Skipped]) -> Iterator[list[str]]:
        """Yield the paragraphs of each document that has some, and count what is skipped."""
        for raw in self.raw:
            parsed = Parsed([], [raw]) if isinstance(raw, Skipped) else self.source.parse(raw)
            for place in parsed.skipped:
                counts[f"{SKIPPED}{place.reason}"] += 1
                skipped.append(place)
            if isinstance(raw, RawDocument) and raw.cut:
                counts["documents cut in parts: too long"] += 1
            if parsed.paragraphs:
                yield parsed.paragraphs


class SampleTask(NamedTuple):
    """A segment to sample for the training of the tokenizer."""

    files: SegmentFiles
    settings: BuildSettings
    first_document: int  # number of its first document among all that are kept
    every: int  # one of so many training documents is taken

    def run(self) -> Path:
        """Write the sentences that the tokenizer is trained on, and count their characters."""
        file = self.files.path("sample")
        if file.is_file():
            return file
        settings = self.settings
        documents, _ = self.files.kept_text()
        valid = EvenSample(settings.valid_fraction)
        held_out = valid.taken(self.first_document, len(documents))
        place = first_trained(self.first_document, settings)
        sample: list[str] = []
        for document, is_held_out in zip(documents, held_out.tolist(), strict=True):
            if not is_held_out:
                if place % self.every == 0:
                    sample += text_pieces(
                        document,
                        splitter=settings.sentences,
                        language=settings.language,
                        moses=settings.language if settings.moses else None,
                    )
                place += 1
        counts = character_counts(sample, lowercase=settings.lowercase)
        save_text(self.files.path("characters.json"), json.dumps(counts))
        save_text(file, "".join(f"{piece}\n" for piece in sample))
        return file


class EncodeTask(NamedTuple):
    """A segment to turn into token ids."""

    files: SegmentFiles
    settings: BuildSettings
    first_document: int
    weight: float
    encoder: DocumentEncoder
    tokenizer: TokenizerRecord

    def run(self) -> EncodedSegment:
        """Encode the documents and write their ids, a file for each part."""
        documents, words = self.files.kept_text()
        encoded = self.encoder.encode(documents)
        valid = EvenSample(self.settings.valid_fraction)
        held_out = valid.taken(self.first_document, len(documents))
        again = np.zeros(len(documents), np.bool_)
        if self.weight >= 1:  # a smaller one was applied when the text was read
            first = first_trained(self.first_document, self.settings)
            num_trained = int(np.count_nonzero(~held_out))
            again[~held_out] = EvenSample(self.weight % 1).taken(first, num_trained)
        masks = {"train": ~held_out, "repeated": again, "valid": held_out}
        counts = {}
        for name, mask in masks.items():
            places = np.flatnonzero(mask).tolist()
            counts[name] = TextCounts(
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
        record = EncodedSegment(**counts, unknown=self._num_unknown(encoded, ~held_out))
        record.save(self.files.path("encoded.json"))
        self.files.path("text").unlink()  # it takes twice the disk space of the ids
        return record

    def _num_unknown(self, encoded: list[EncodedDocument], chosen: NDArray[np.bool_]) -> int:
        unknown = self.tokenizer.special_tokens.get("unk")
        if unknown is None:  # a byte-level tokenizer encodes every text
            return 0
        return sum(
            int(np.count_nonzero(encoded[place].ids == unknown))
            for place in np.flatnonzero(chosen).tolist()
        )


def first_trained(first_document: int, settings: BuildSettings) -> int:
    """Return how many of the documents before this one are not held out."""
    return first_document - EvenSample(settings.valid_fraction).num_taken_before(first_document)


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
