"""Build a shard folder from text: reading, tokenizer, encoding, sequences, manifest.

Each step processes segments of the text in worker processes and records each finished one (see
segments.py), so that a build is resumed after a kill or a loss of power. The shards are a function
of the sources and settings alone, not of the number of workers, nor of interruptions.
"""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from tokenizers import Tokenizer

from data_prep.files.atomic import put_in_place
from data_prep.files.processors import cpu_count
from data_prep.files.progress_bar import progress_bar
from data_prep.files.quoting import quoted
from data_prep.files.workers import Workers
from data_prep.pipeline.reading import EARLY_SEGMENTS, counts_of, read_segments, read_sources
from data_prep.pipeline.segments import (
    PARTED,
    SEGMENT_BYTES,
    SEGMENTS,
    EncodedSegment,
    EncodeTask,
    SampleTask,
    Segment,
    StageResult,
)
from data_prep.pipeline.selection import select_paragraphs
from data_prep.settings import STOPPING_SETTINGS, BuildSettings
from data_prep.shards.folders import CONTENT, workplace_of
from data_prep.shards.format import SequenceFormat, id_type
from data_prep.shards.manifest import (
    MANIFEST_FILE,
    TOKENIZER_FILE,
    Manifest,
    ShardError,
    SplitName,
    SplitRecord,
    TokenizerKind,
    TokenizerRecord,
    summary,
    write_manifest,
)
from data_prep.shards.packing import TokenFile, TokenStream, write_split
from data_prep.sources.source import CannotReadOn, CorpusError, FileSource, Source
from data_prep.sources.spec import open_sources
from data_prep.text.sampling import passes
from data_prep.text.sentences import check_language
from data_prep.text.text_encoder import TextEncoder
from data_prep.tokenizer.cleaning import add_cleaning
from data_prep.tokenizer.describe import SpecialNames, TokenizerError, record_of
from data_prep.tokenizer.load import load_tokenizer, special_names_beside
from data_prep.tokenizer.train import MOST_ACCENTED, accents_of, train_tokenizer

SAMPLE_CHARACTERS = 100_000_000  # to train a tokenizer on, approximately
WORTH_A_WARNING = 0.01  # shares of [UNK], and of words that stripping accents makes equal
# Share of entries: of 8,192 learned from English 4 %, of 32,768 5 % are parts of other ones.
MOST_UNUSED = 0.1
MOST_HELD_OUT = 5  # times the share that is asked for
IDENTITY_FILE = "identity.json"
WORTH_KEEPING = 64  # segments, half a gigabyte; less is read again in a minute
# Tokenizers that fit have less than 1 % [UNK]. On a text of [UNK] alone the loss is 0.
MOST_UNKNOWN = 0.5


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
    check_language(settings.rules_language, splitter=settings.sentences)
    for name in ("lowercase", "strip_accents") if _trained_kind(settings) is None else ():
        if (value := getattr(settings, name)) != BuildSettings.model_fields[name].default:
            raise TokenizerError(
                f"data.{name}={quoted(value)} has no effect on a tokenizer that is loaded; remove "
                "it, or let one be trained: --data.tokenizer wordpiece"
            )
    sources = open_sources(settings.corpus, settings.damaged_files)
    with workplace_of(folder) as workplace:
        _check_identity(settings, sources, workplace)
        try:
            # Workers write into the folder: they end before it is removed.
            with Workers(workers or cpu_count()) as pool:
                manifest = _Build(settings, sources, workplace, pool).run(segment_bytes)
        except BaseException as error:
            # Of a text that is refused nothing stays, unless much was read and can be used.
            is_refused = isinstance(error, CorpusError | ShardError | TokenizerError)
            is_large = len(read_segments(workplace)) >= WORTH_KEEPING
            if is_refused and not (is_large and isinstance(error, CannotReadOn)):
                shutil.rmtree(workplace)
            else:
                how = "" if is_refused else "; the same command goes on"
                print(f"note: finished parts are kept in {workplace}{how}", file=sys.stderr)
            raise
        put_in_place(workplace / CONTENT, folder)
        shutil.rmtree(workplace)
    seconds = time.monotonic() - start
    print(f"{folder}: built in {seconds:.0f} s\n{summary(manifest)}", file=sys.stderr)
    return manifest


class _Identity(StageResult):
    """What determines the bytes of a build."""

    settings: dict[str, object]
    libraries: dict[str, str]
    files: dict[str, list[list[object]]]

    def difference(self, now: "_Identity") -> str:
        """Return the first difference in words."""
        before = self.settings | self.libraries
        for name, value in (now.settings | now.libraries).items():
            if (then := before.get(name)) != value:
                return f"{name} was {quoted(then)} and is {quoted(value)}"
        changed = [name for name, sizes in now.files.items() if self.files.get(name) != sizes]
        return f"the files of {changed[0]} have changed since" if changed else ""


class _Tokenizer(StageResult):
    """A tokenizer that was loaded or trained."""

    record: TokenizerRecord


def _check_identity(settings: BuildSettings, sources: list[Source], workplace: Path) -> None:
    """Record what determines the bytes of a build, or compare it with that of an earlier call."""
    packages = ["tokenizers", "h5py", settings.sentences, *["sacremoses"] * settings.moses]
    packages += [name for source in sources for name in source.libraries]
    now = _Identity(
        settings=settings.model_dump(mode="json", exclude=set(STOPPING_SETTINGS)),
        libraries={name: version(name) for name in packages},
        files={source.name: source.identity() for source in sources},
    )
    file = workplace / IDENTITY_FILE
    before = _Identity.load(file)
    if before is None and file.is_file():
        print(f"note: {workplace}: of an earlier version: built again", file=sys.stderr)
    # Without content these are remains of a finished build, whose removal was interrupted.
    if before and (workplace / CONTENT).is_dir() and any((workplace / SEGMENTS).glob("*.json")):
        if what := before.difference(now):
            raise ShardError(
                f"{workplace}: holds an unfinished build of something else ({what}); repeat its "
                "command to finish it, or remove that folder to start again"
            )
        return
    for stale in (SEGMENTS, CONTENT):  # nothing is lost by starting again
        shutil.rmtree(workplace / stale, ignore_errors=True)
    (workplace / TOKENIZER_FILE).unlink(missing_ok=True)
    (workplace / SEGMENTS).mkdir()
    now.save(file)


class _Build:
    """One call of `build`: its steps, each of which does only what is missing."""

    def __init__(
        self, settings: BuildSettings, sources: list[Source], workplace: Path, pool: Workers
    ) -> None:
        self.settings, self.sources, self.pool = settings, sources, pool
        self.workplace, self.content = workplace, workplace / CONTENT

    def run(self, segment_bytes: int) -> Manifest:
        """Do what is missing, and return the manifest."""
        for stray in self.workplace.rglob("*.partial*"):
            stray.unlink()
        self.content.mkdir(exist_ok=True)
        for source in self.sources:
            if isinstance(source, FileSource) and source.left_out:
                print(f"note: {source.name}: left out {source.left_out}", file=sys.stderr)
        tokenizer = self.load_tokenizer()  # before anything is read: a wrong name fails at once
        if num_read := len(read_segments(self.workplace)):
            num_encoded = len(list(self.workplace.glob(f"{SEGMENTS}/*.encoded.json")))
            print(
                f"resuming {self.workplace}: {num_read} parts of the text read, {num_encoded} "
                "encoded",
                file=sys.stderr,
            )
        segments = self.read(segment_bytes)
        tokenizer = tokenizer or self.train_tokenizer(segments)
        encoded = self.encode(segments, tokenizer)
        cleaning = counts_of(*(part for one in segments for part in (one.read, one)))
        sources = self.sources[: segments[-1].read.source + 1]  # others are beyond `max_words`
        manifest = Manifest(
            sequence_length=self.settings.sequence_length,
            dtype=id_type(tokenizer.vocabulary_size),
            tokenizer=tokenizer,
            splits=self.write_shards(segments, encoded, tokenizer),
            settings=self.settings.model_dump(mode="json"),
            source="; ".join(source.description for source in sources),
            licence="; ".join(dict.fromkeys(source.licence for source in sources)),
            cleaning=dict(sorted(cleaning.items())),
        )
        write_manifest(self.content, manifest)
        return manifest

    def read(self, segment_bytes: int) -> list[Segment]:
        """Read the sources, clean the text, find repetitions, and return the segments."""
        segments = read_sources(
            self.sources, self.settings, self.workplace, self.pool, segment_bytes=segment_bytes
        )
        before = _Identity.load(self.workplace / IDENTITY_FILE)
        for source in self.sources:
            if before is None or source.identity() != before.files[source.name]:
                raise CorpusError(
                    f"{source.name}: changed while it was being read; wait until nothing writes "
                    "to it, and give the same command again"
                )
        weights = [source.weight for source in self.sources]
        return select_paragraphs(segments, weights, self.settings, self.workplace)

    def load_tokenizer(self) -> TokenizerRecord | None:
        """Return the tokenizer that is loaded, or was trained by an earlier call."""
        if done := _Tokenizer.load(self.workplace / TOKENIZER_FILE):
            return done.record
        if _trained_kind(self.settings) is not None:
            return None
        place = self.settings.tokenizer
        tokenizer, folders = load_tokenizer(place), (Path(place), Path(place).parent)
        # That of other shards or a run stays what it is: both are measured with it.
        if not any((folder / MANIFEST_FILE).is_file() for folder in folders):
            add_cleaning(tokenizer)
        if tokenizer.normalizer and tokenizer.normalizer.normalize_str("ä").endswith("a"):
            print("note: the tokenizer strips accents: ä becomes a", file=sys.stderr)
        return self._save_tokenizer(tokenizer, "loaded", special_names_beside(place))

    def train_tokenizer(self, segments: list[Segment]) -> TokenizerRecord:
        """Train the tokenizer on a sample of the text."""
        settings, kind = self.settings, _trained_kind(self.settings)
        assert kind is not None
        characters = sum(segment.read.characters for segment in segments)
        every = -(-characters // SAMPLE_CHARACTERS)
        tasks = (SampleTask(segment, settings, every) for segment in segments)
        files = []
        with progress_bar("sample", len(segments), "part") as bar:
            for file in self.pool.map(SampleTask.run, tasks):
                files.append(file)
                bar.update()
        size = sum(file.stat().st_size for file in files)
        with progress_bar("tokenizer", 2 * size, "B") as bar:
            words = Counter(chain.from_iterable(map(str.split, _lines(files, bar))))
            tokenizer = train_tokenizer(
                _lines(files, bar),
                words,
                kind=kind,
                vocabulary_size=settings.vocabulary_size,
                lowercase=settings.lowercase,
                strip_accents=self.strips_accents(words),
                moses=settings.moses,
            )
        return self._save_tokenizer(tokenizer, kind, {})

    def strips_accents(self, words: Counter[str]) -> bool:
        """Return whether accents are stripped, and say what this does to the words of the text."""
        strips, lowercase = self.settings.strip_accents, self.settings.lowercase
        accented, merged = accents_of(words, lowercase=lowercase)
        if strips is None:
            strips = lowercase and accented <= MOST_ACCENTED
        level = "warning" if strips and merged > WORTH_A_WARNING else "note"
        if accented >= 0.0001 and (lowercase or strips):
            print(
                f"{level}: {accented:.2%} of the words have accents, which are "
                f"{'stripped' if strips else 'kept'} (--data.strip_accents); {merged:.2%} of the "
                "frequent words differ in them alone",
                file=sys.stderr,
            )
        return strips

    def encode(self, segments: list[Segment], tokenizer: TokenizerRecord) -> list[EncodedSegment]:
        """Turn the text of every segment into token ids."""
        settings, file = self.settings, self.content / TOKENIZER_FILE
        tasks = (EncodeTask(segment, settings, file, tokenizer) for segment in segments)
        encoded: list[EncodedSegment] = []
        num_tokens = num_unknown = 0
        total = sum(segment.read.characters for segment in segments)
        with progress_bar("encoding", total, "char") as bar:
            for segment, record in zip(segments, self.pool.map(EncodeTask.run, tasks), strict=True):
                encoded.append(record)
                bar.update(segment.read.characters)
                num_tokens += record.train.tokens
                num_unknown += record.unknown
                is_judged = len(encoded) in (EARLY_SEGMENTS, len(segments))
                if is_judged and num_unknown > MOST_UNKNOWN * num_tokens:
                    raise TokenizerError(
                        f"{settings.tokenizer}: {num_unknown / num_tokens:.0%} of the tokens of "
                        f"this text are [UNK], the allowed share is {MOST_UNKNOWN:.0%}; choose a "
                        "tokenizer made for its language and script, or train one, with a larger "
                        "vocabulary or as byte-bpe, which knows every text"
                    )
        self.report(segments, num_unknown / max(1, num_tokens), tokenizer)
        return encoded

    def report(self, segments: list[Segment], unknown: float, tokenizer: TokenizerRecord) -> None:
        """Print the share of [UNK], and of the entries of a trained tokenizer that never occur."""
        size, asked, idle = tokenizer.vocabulary_size, self.settings.vocabulary_size, False
        words = f"{unknown:.2%} of the tokens are [UNK]"
        lost = unknown > WORTH_A_WARNING
        if _trained_kind(self.settings) is not None:
            words += " (less in a larger vocabulary, none with byte-bpe)" * lost
            used = np.zeros(size, np.bool_)
            for segment in segments[:1024]:  # gigabytes
                used[np.fromfile(segment.files.path("train.ids"), id_type(size))] = True
            used[[*tokenizer.special_tokens.values()]] = True
            unused = 1 - used.sum() / max(size, asked)
            words += f"; of {asked:,} entries asked for, the tokenizer has {size:,} and the text "
            words += f"uses {used.sum():,}"
            if idle := unused > MOST_UNUSED:
                words += " (a smaller --model.vocabulary_size will do)"
        print(f"{'warning' if lost or idle else 'note'}: {words}", file=sys.stderr)

    def write_shards(
        self, segments: list[Segment], encoded: list[EncodedSegment], tokenizer: TokenizerRecord
    ) -> dict[SplitName, SplitRecord]:
        """Cut the token ids into sequences, write and describe them."""
        form = SequenceFormat(self.settings.sequence_length, tokenizer)
        splits: dict[SplitName, SplitRecord] = {}
        for name in get_args(SplitName):
            stream = TokenStream(_token_files(segments, encoded, name), form.dtype)
            splits[name] = write_split(
                *(self.content, name, stream, form),
                longest=self.settings.rows_per_shard,
                counts=_total(segments, encoded, name),
                run=self.pool.map,
            )
        share = splits["valid"].tokens / sum(split.tokens for split in splits.values())
        if share > MOST_HELD_OUT * self.settings.valid_fraction:
            print(
                f"warning: {share:.0%} of the tokens are held out, in whole documents; {PARTED}",
                file=sys.stderr,
            )
        return splits

    def _save_tokenizer(
        self, tokenizer: Tokenizer, kind: TokenizerKind | Literal["loaded"], names: SpecialNames
    ) -> TokenizerRecord:
        """Write the tokenizer, and its record into the working folder."""
        file = self.content / TOKENIZER_FILE
        tokenizer.save(str(file))
        moses = self.settings.rules_language if self.settings.moses else None
        record = record_of(tokenizer, file, kind=kind, moses=moses, names=names)
        TextEncoder(tokenizer, record).compare()
        _Tokenizer(record=record).save(self.workplace / TOKENIZER_FILE, file)
        return record


def _trained_kind(settings: BuildSettings) -> TokenizerKind | None:
    """Return the kind of tokenizer to train, None if one is loaded."""
    return next((kind for kind in get_args(TokenizerKind) if kind == settings.tokenizer), None)


def _lines(files: list[Path], bar: Any) -> Iterator[str]:
    """Yield the lines of files, without their ends, and advance a bar."""
    for file in files:
        with file.open(encoding="utf-8", newline="\n") as stream:
            yield from (line.rstrip("\n") for line in stream)
        bar.update(file.stat().st_size)


def _token_files(
    segments: list[Segment], encoded: list[EncodedSegment], name: SplitName
) -> tuple[TokenFile, ...]:
    """Return the token files of a split in order; training text pass by pass."""
    parts = [(number, "valid") for number in range(len(segments))]
    if name == "train":
        parts = [
            # A weight below 1 was applied when the text was read.
            (number, "train" if is_whole or segments[number].weight < 1 else "repeated")
            for number, is_whole in passes([segment.weight for segment in segments])
        ]
    found = []
    for number, kind in parts:
        counts = dict(encoded[number])[kind]
        file = segments[number].files.path(f"{kind}.ids")
        found.append(TokenFile(file, counts.tokens + counts.documents))
    return tuple(found)


def _total(segments: list[Segment], encoded: list[EncodedSegment], name: SplitName) -> Counter[str]:
    """Return the counts of a split, repetitions included."""
    total: Counter[str] = Counter()
    for segment, record in zip(segments, encoded, strict=True):
        times = max(1, int(segment.weight))
        parts = [record.valid] if name == "valid" else [record.train] * times + [record.repeated]
        for part in parts:
            total.update(dict(part))
    return total
