"""Segments of a build: what a worker does with one, and how the result is stored.

A segment is some megabytes of consecutive documents of one source. Each step writes its files and
then its result; a step that has one is never repeated. The shards do not depend on where segments
begin and end.
"""

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from data_prep.files.atomic import save_text, write_through
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import TokenizerRecord
from data_prep.shards.packing import TokenWriter
from data_prep.sources.source import EXPECTED_SKIPS, Document, Position, Skipped, Source
from data_prep.text.deduplicate import hashes_of
from data_prep.text.encode import encode_documents
from data_prep.text.holes import without_holes
from data_prep.text.sampling import Before, EvenSample
from data_prep.text.sentences import text_pieces
from data_prep.tokenizer.cleaning import clean

PARTED = "put empty lines between documents of a text file, or add :documents=line to its name"
SEGMENT_BYTES = 8 << 20  # of the source: bounds the memory of a worker
SEGMENTS = "segments"  # the folder of their files, in the working folder


class StageResult(BaseModel):
    """The result of a step, saved as JSON when the step is complete."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def save(self, file: Path, *written: Path) -> Self:
        """Write the result after the files of the step have reached the disk, and return it."""
        for each in written:
            write_through(each)
        save_text(file, self.model_dump_json())
        return self

    @classmethod
    def load(cls, file: Path) -> Self | None:
        """Return the result; None if there is none, or it is of an earlier version."""
        try:
            return cls.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            return None


class TextCounts(BaseModel):
    """Counts of some documents."""

    model_config = ConfigDict(frozen=True)

    documents: int = 0
    words: int = 0
    tokens: int = 0  # without separators


class ReadSegment(StageResult):
    """A segment whose text was read and cleaned."""

    source: int
    end: Position  # where the source continues
    num_raw: int  # documents of this source so far, before cleaning
    read_bytes: int  # bytes of this source so far
    is_last: bool  # of this source
    documents: int
    begun: int  # of these: the others continue the one before them
    paragraphs: int
    words: int
    characters: int
    cleaning: dict[str, int]
    first_skipped: Skipped | None
    units: int  # lines or documents, see `Source.unit`
    units_skipped: int  # without those that the source expects to skip


class EncodedSegment(StageResult):
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
        return self.workplace / SEGMENTS / f"{self.number:06d}.{kind}"

    def kept_text(self) -> tuple[list[list[str]], list[int], NDArray[np.bool_]]:
        """Return the kept paragraphs of each document, its words, and whether it is held out."""
        with np.load(self.path("counts.npz")) as counts, np.load(self.path("keep.npz")) as kept:
            keep, words = kept["paragraphs"].tolist(), counts["words"].tolist()
            held_out = kept["held_out"]
        with self.path("text").open(encoding="utf-8", newline="\n") as stream:
            texts = stream.read().split("\n\n")[:-1]
        documents, num_words, place = [], [], 0
        for text in texts:
            paragraphs = text.split("\n")
            places = [i for i in range(place, place + len(paragraphs)) if keep[i]]
            if places:
                documents.append([paragraphs[i - place] for i in places])
                num_words.append(sum(words[i] for i in places))
            place += len(paragraphs)
        return documents, num_words, held_out


class Segment(NamedTuple):
    """A segment whose text was read and whose repetitions were found."""

    files: SegmentFiles
    read: ReadSegment
    weight: float
    before: Before  # of the kept documents
    documents: int  # that are kept
    cleaning: Counter[str]  # what is dropped

    @property
    def first_trained(self) -> int:
        """Return how many training documents precede those of this segment."""
        return self.before.documents - self.before.held_out


class ReadTask(NamedTuple):
    """A segment to read: documents, and the state of their source."""

    files: SegmentFiles
    source_number: int
    source: Source
    found: list[Document]
    settings: BuildSettings
    end: Position = Position(0, 0)
    num_raw: int = 0
    num_left_out: int = 0  # for a weight below 1
    read_bytes: int = 0
    is_last: bool = False

    def run(self) -> ReadSegment:
        """Clean the documents and write their text: a paragraph a line, an empty one after each."""
        counts = Counter({"documents left out: weight below 1": self.num_left_out})
        skipped = [place for document in self.found for place in document.skipped]
        counts.update(f"skipped: {place.reason}" for place in skipped)
        num_read = 0
        documents, continues = [], []
        for document in self.found:
            counts["documents cut in parts: too long"] += document.continues
            paragraphs = self.source.paragraphs(document)
            if self.source.is_wikipedia:
                paragraphs = without_holes(
                    paragraphs,
                    counts,
                    splitter=self.settings.sentences,
                    language=self.settings.rules_language,
                )
            num_read += len(paragraphs) if self.source.unit == "lines" else bool(paragraphs)
            if kept := clean(paragraphs, counts):
                documents.append(kept)
                continues.append(document.continues)
        num_skipped = sum(place.reason not in EXPECTED_SKIPS for place in skipped)
        text = "".join("\n".join([*paragraphs, "\n"]) for paragraphs in documents)
        self.files.path("text").write_text(text, encoding="utf-8", newline="\n")
        words = self._write_counts(documents, continues)
        return ReadSegment(
            source=self.source_number,
            end=self.end,
            num_raw=self.num_raw,
            read_bytes=self.read_bytes,
            is_last=self.is_last,
            documents=len(documents),
            begun=continues.count(False),
            paragraphs=len(words),
            words=int(words.sum()),
            characters=sum(map(len, chain(*documents))),
            cleaning=+counts,
            first_skipped=min(skipped, key=lambda one: one.reason in EXPECTED_SKIPS, default=None),
            units=num_read + num_skipped,
            units_skipped=num_skipped,
        ).save(*map(self.files.path, ("read.json", "text", "counts.npz")))

    def _write_counts(
        self, documents: list[list[str]], continues: list[bool]
    ) -> NDArray[np.uint32]:
        """Write the words of each paragraph and the hashes for deduplication; return the words."""
        words = np.array([len(text.split()) for text in chain(*documents)], np.uint32)
        is_hashed, none = self.settings.deduplicate != "none", np.empty((0, 2), np.uint64)
        np.savez(
            self.files.path("counts.npz"),
            words=words,
            continues=np.array(continues, np.bool_),
            paragraphs=np.array([len(document) for document in documents], np.uint32),
            paragraph_hashes=hashes_of(map(str.encode, chain(*documents))) if is_hashed else none,
            document_hashes=hashes_of("\n".join(one).encode() for one in documents)
            if is_hashed
            else none,
        )
        return words


class SampleTask(NamedTuple):
    """A segment to sample for the training of the tokenizer."""

    segment: Segment
    settings: BuildSettings
    every: int  # one of so many training documents is taken

    def run(self) -> Path:
        """Write the text that the tokenizer is trained on."""
        files, settings = self.segment.files, self.settings
        file = files.path("sample")
        documents, _, held_out = files.kept_text()
        trained = np.flatnonzero(~held_out).tolist()
        sample: list[str] = []
        for number, place in enumerate(trained, start=self.segment.first_trained):
            if number % self.every == 0:
                sample += text_pieces(
                    documents[place],
                    splitter=settings.sentences,
                    language=settings.rules_language,
                    moses=settings.rules_language if settings.moses else None,
                )
        text = "".join(f"{piece}\n" for piece in sample)
        file.write_text(text, encoding="utf-8", newline="\n")
        return file


class EncodeTask(NamedTuple):
    """A segment to turn into token ids."""

    segment: Segment
    settings: BuildSettings
    tokenizer_file: Path
    tokenizer: TokenizerRecord

    def run(self) -> EncodedSegment:
        """Encode the documents and write their ids, a file for each part."""
        files, settings = self.segment.files, self.settings
        if done := EncodedSegment.load(files.path("encoded.json")):
            return done
        documents, words, held_out = files.kept_text()
        encoded = encode_documents(
            documents,
            self.tokenizer_file,
            self.tokenizer,
            splitter=settings.sentences,
            language=settings.rules_language,
        )
        again = np.zeros(len(documents), np.bool_)
        if self.segment.weight >= 1:  # a smaller one was applied when the text was read
            first, num_trained = self.segment.first_trained, int((~held_out).sum())
            again[~held_out] = EvenSample(self.segment.weight % 1).taken(first, num_trained)
        counts = {}
        parts = {"train": ~held_out, "repeated": again, "valid": held_out}
        for name, mask in parts.items():
            places = np.flatnonzero(mask).tolist()
            writer = TokenWriter(files.path(f"{name}.ids"), self.tokenizer)
            for place in places:
                writer.append(encoded[place])
            writer.close()
            counts[name] = TextCounts(
                documents=writer.documents,
                words=sum(words[place] for place in places),
                tokens=writer.tokens,
            )
        # A byte-level tokenizer may have no [UNK]: it encodes every text.
        unknown = self.tokenizer.special_tokens.get("unk", -1)
        trained = np.flatnonzero(~held_out).tolist()
        record = EncodedSegment(
            **counts, unknown=sum(int((encoded[place] == unknown).sum()) for place in trained)
        ).save(files.path("encoded.json"), *(files.path(f"{name}.ids") for name in parts))
        files.path("text").unlink()  # it takes twice the disk space of the ids
        return record
