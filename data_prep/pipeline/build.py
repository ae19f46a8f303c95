"""Build a shard folder from text: reading, tokenizer, encoding, rows, manifest.

Each step processes segments of the text in worker processes and records each finished one (see
segments.py), so that a build that was killed is resumed. The shards are a function of the sources
and settings alone, not of the number of workers, nor of interruptions.
"""

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from tokenizers import Tokenizer

from data_prep.files.atomic import save_text
from data_prep.files.progress_bar import progress_bar
from data_prep.files.workers import Workers, cpu_count
from data_prep.pipeline.reading import TooLittleText, read_segments, read_sources
from data_prep.pipeline.refusals import EARLY_SEGMENTS, refuse_unknown
from data_prep.pipeline.resume import check_identity, refuse_changed
from data_prep.pipeline.rows import WRITTEN, cleaning_of, write_shards
from data_prep.pipeline.segments import (
    PLACES_PER_REASON,
    SEGMENT_BYTES,
    TOKENIZER_RECORD,
    EncodedSegment,
    EncodeTask,
    SampleTask,
    Segment,
    SegmentFiles,
)
from data_prep.pipeline.selection import select_paragraphs
from data_prep.settings import BuildSettings
from data_prep.shards.folders import CONTENT, finish, workplace_of
from data_prep.shards.manifest import (
    TOKENIZER_FILE,
    Manifest,
    SplitName,
    SplitRecord,
    TokenizerRecord,
    summary,
    write_manifest,
)
from data_prep.shards.packing import RowFormat
from data_prep.sources.source import CorpusError, FileSource, Source
from data_prep.sources.spec import open_source
from data_prep.text.encode import DocumentEncoder
from data_prep.text.sentences import check_language
from data_prep.tokenizer.describe import SpecialNames, TokenizerError, record_of
from data_prep.tokenizer.load import load_tokenizer, special_names_beside
from data_prep.tokenizer.train import (
    TokenizerKind,
    alphabet_of,
    check_vocabulary_size,
    train_tokenizer,
)

if TYPE_CHECKING:
    from data_prep.files.progress_bar import Bar

# Segments, half a gigabyte. Less is read again in a minute, and what corrects the error, such as a
# converted file, is another build, which an unfinished one would block.
WORTH_KEEPING = 64

SAMPLE_CHARACTERS = 100_000_000  # to train a tokenizer on, approximately

SKIPPED_FILE = "skipped.jsonl"


def build(
    settings: BuildSettings,
    folder: Path,
    *,
    workers: int | None = None,
    segment_bytes: int = SEGMENT_BYTES,
) -> Manifest:
    """Build a shard folder, or resume a build that was stopped.

    Whole documents are held out, evenly over the text, the first included; the tokenizer sees the
    training documents only. Memory does not depend on the size of the corpus: about 200 MB for
    each process, 400 with spaCy, plus what training a tokenizer needs (see
    `SAMPLE_CHARACTERS`). The folder "NAME.building" temporarily holds the text and the
    token ids: about one and a half times the size of the text.

    Args:
        settings: The text and its preparation.
        folder: Must not exist yet.
        workers: Number of processes; default: one for each CPU. 1 uses no other process.
        segment_bytes: Size of the segments that workers process.

    Raises:
        CorpusError: The text cannot be read or is too small, or too much of it is skipped.
        ShardError: `folder` exists, cannot be written, is being built by another process, or an
            unfinished build there has other settings or other sources.
        TokenizerError: The tokenizer cannot be loaded, trained or used, or does not know the text;
            or the language is unknown.
        WorkerDied: A worker process was killed. Finished parts are kept.
    """
    start = time.monotonic()
    # At once, what would fail only when all of the text has been read.
    check_language(settings.language, splitter=settings.sentences)
    if kind := _trained_kind(settings):
        check_vocabulary_size(settings.vocabulary_size, kind=kind)
    sources = [open_source(text, damaged_files=settings.damaged_files) for text in settings.corpus]
    pool = Workers(workers or cpu_count())
    with workplace_of(folder) as workplace:
        work = _Build(settings, sources, workplace, pool)
        work.check()
        try:
            with pool:  # ended before anything is removed: workers write into the folder
                manifest = work.run(segment_bytes)
        except (TooLittleText, TokenizerError):
            shutil.rmtree(workplace)  # the same text and tokenizer cannot succeed later
            raise
        except CorpusError as error:
            raise _with_parts(error, workplace) from error
        finish(workplace, folder)
    seconds = time.monotonic() - start
    print(f"{folder}: built in {seconds:.0f} s\n{summary(manifest)}", file=sys.stderr)
    return manifest


class _Build:
    """One call of `build`: its steps, each of which does only what is missing."""

    def __init__(
        self, settings: BuildSettings, sources: list[Source], workplace: Path, pool: Workers
    ) -> None:
        self.settings, self.sources, self.pool = settings, sources, pool
        self.workplace, self.content = workplace, workplace / CONTENT
        for name in ("segments", WRITTEN, CONTENT):
            (workplace / name).mkdir(exist_ok=True)
        for stray in workplace.rglob("*.partial*"):
            stray.unlink()

    def check(self) -> None:
        """Check that the parts of an earlier call belong to this build, and report them."""
        num_discarded = check_identity(self.settings, self.sources, self.workplace)
        found = {
            "parts of the text read": len(read_segments(self.workplace)),
            "parts encoded": len(list((self.workplace / "segments").glob("*.encoded.json"))),
            "files of sequences": len(list((self.workplace / WRITTEN).iterdir())),
        }
        for source in self.sources:
            if isinstance(source, FileSource) and source.left_out:
                print(f"note: {source.name}: left out {source.left_out}", file=sys.stderr)
        reused = [f"{number} {what}" for what, number in found.items() if number]
        if num_discarded:
            reused.append(f"{num_discarded} parts read again, their files have changed")
        if reused:
            print(f"resuming {self.workplace}: {', '.join(reused)}", file=sys.stderr)

    def run(self, segment_bytes: int) -> Manifest:
        """Do what is missing, and return the manifest."""
        loaded = self.load_tokenizer()
        segments = self.read(segment_bytes)
        tokenizer = loaded or self.train_tokenizer(segments)
        encoded = self.encode(segments, tokenizer)
        splits = write_shards(
            segments, encoded, tokenizer, self.settings, self.workplace, self.pool
        )
        return self.manifest(segments, tokenizer, splits)

    def read(self, segment_bytes: int) -> list[Segment]:
        """Read the sources, clean the text, find repetitions, and return the segments."""
        segments = read_sources(
            self.sources, self.settings, self.workplace, self.pool, segment_bytes=segment_bytes
        )
        files = [SegmentFiles(self.workplace, number) for number in range(len(segments))]
        if not any(file.path("kept.json").exists() for file in files):  # else it was complete
            refuse_changed(self.sources, self.workplace)
        kept = select_paragraphs(files, segments, self.settings, self.workplace)
        return [
            Segment(place, segment, record, self.sources[segment.source].weight)
            for place, segment, record in zip(files, segments, kept, strict=True)
        ]

    def load_tokenizer(self) -> TokenizerRecord | None:
        """Return the tokenizer that is loaded, or was trained by an earlier call, if there is one.

        Called before anything is read, so that a wrong name fails at once.
        """
        file = self.workplace / TOKENIZER_RECORD
        if file.exists():
            return TokenizerRecord.model_validate_json(file.read_bytes())
        if _trained_kind(self.settings) is not None:
            return None
        place = self.settings.tokenizer
        names = special_names_beside(place)
        return self._save_tokenizer(load_tokenizer(place), kind="loaded", names=names)

    def train_tokenizer(self, segments: list[Segment]) -> TokenizerRecord:
        """Train the tokenizer on a sample of the text."""
        kind = _trained_kind(self.settings)
        assert kind is not None
        return self._save_tokenizer(self._train(segments, kind), kind=kind, names={})

    def encode(self, segments: list[Segment], tokenizer: TokenizerRecord) -> list[EncodedSegment]:
        """Turn the text of every segment into token ids."""
        encoder = DocumentEncoder(
            self.content / TOKENIZER_FILE,
            tokenizer,
            splitter=self.settings.sentences,
            language=self.settings.language,
        )
        done = [EncodedSegment.load(s.files.path("encoded.json")) for s in segments]
        tasks = (
            EncodeTask(s.files, self.settings, s.kept.first_document, s.weight, encoder, tokenizer)
            for s, record in zip(segments, done, strict=True)
            if record is None
        )
        results = self.pool.map(EncodeTask.run, tasks)
        encoded = []
        total = sum(segment.read.characters for segment in segments)
        with progress_bar("encoding", total, "char") as bar:
            for segment, record in zip(segments, done, strict=True):
                encoded.append(record or next(results))
                if len(encoded) == EARLY_SEGMENTS:
                    refuse_unknown(self.settings.tokenizer, encoded)
                bar.update(segment.read.characters)
        refuse_unknown(self.settings.tokenizer, encoded)
        return encoded

    def manifest(
        self,
        segments: list[Segment],
        tokenizer: TokenizerRecord,
        splits: dict[SplitName, SplitRecord],
    ) -> Manifest:
        """Write the manifest and the list of skipped lines."""
        manifest = Manifest(
            sequence_length=self.settings.sequence_length,
            dtype=RowFormat.of(tokenizer, self.settings.sequence_length).dtype,
            tokenizer=tokenizer,
            splits=splits,
            settings=self.settings.model_dump(mode="json"),
            source="; ".join(source.description for source in self.sources),
            licence="; ".join(dict.fromkeys(source.licence for source in self.sources)),
            cleaning=cleaning_of(segments),
        )
        self._write_skipped(segments)
        write_manifest(self.content, manifest)
        return manifest

    def _save_tokenizer(
        self, tokenizer: Tokenizer, *, kind: TokenizerKind | Literal["loaded"], names: SpecialNames
    ) -> TokenizerRecord:
        """Write the tokenizer and return its record."""
        file = self.content / TOKENIZER_FILE
        tokenizer.save(str(file))
        moses = self.settings.language if self.settings.moses else None
        record = record_of(tokenizer, file, kind=kind, moses=moses, names=names)
        save_text(self.workplace / TOKENIZER_RECORD, record.model_dump_json())
        return record

    def _train(self, segments: list[Segment], kind: TokenizerKind) -> Tokenizer:
        settings = self.settings
        characters = sum(segment.read.characters for segment in segments)
        every = -(-characters // SAMPLE_CHARACTERS)
        tasks = (SampleTask(s.files, settings, s.kept.first_document, every) for s in segments)
        with progress_bar("sample", len(segments), "part") as bar:
            files = []
            for file in self.pool.map(SampleTask.run, tasks):
                files.append(file)
                bar.update()
        counts: Counter[str] = Counter()
        for segment in segments:
            counts.update(json.loads(segment.files.path("characters.json").read_text()))
        total = sum(file.stat().st_size for file in files)
        with progress_bar("tokenizer", total, "B") as bar:
            return train_tokenizer(
                _pieces(files, bar),
                kind=kind,
                vocabulary_size=settings.vocabulary_size,
                lowercase=settings.lowercase,
                alphabet=alphabet_of(counts, vocabulary_size=settings.vocabulary_size),
                moses=settings.moses,
            )

    def _write_skipped(self, segments: list[Segment]) -> None:
        """List the first skipped places of each reason."""
        seen: Counter[str] = Counter()
        lines = []
        for place in (place for segment in segments for place in segment.read.skipped):
            seen[place.reason] += 1
            if seen[place.reason] <= PLACES_PER_REASON:
                lines.append(json.dumps(place._asdict(), ensure_ascii=False) + "\n")
        if lines:
            save_text(self.content / SKIPPED_FILE, "".join(lines))


def _with_parts(error: CorpusError, workplace: Path) -> CorpusError:
    """Return the error with what is kept; a working folder that holds little is removed."""
    num_read = len(read_segments(workplace))
    if num_read < WORTH_KEEPING:
        shutil.rmtree(workplace)
        return error
    return CorpusError(
        f"{error}; {num_read} parts that were read are kept in {workplace} and used when this "
        "build is repeated; remove that folder to build something else"
    )


def _trained_kind(settings: BuildSettings) -> TokenizerKind | None:
    """Return the kind of tokenizer to train, None if one is loaded."""
    return next((kind for kind in get_args(TokenizerKind) if kind == settings.tokenizer), None)


def _pieces(files: Iterable[Path], bar: "Bar") -> Iterator[str]:
    for file in files:
        with file.open(encoding="utf-8", newline="\n") as stream:
            yield from (line.rstrip("\n") for line in stream)
        bar.update(file.stat().st_size)
