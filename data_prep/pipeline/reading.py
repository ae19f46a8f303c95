"""Read the sources of a build segment by segment, continuing after the last complete one."""

import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from data_prep.files.progress_bar import progress_bar
from data_prep.files.workers import Workers
from data_prep.pipeline.segments import PARTED, ReadSegment, ReadTask, Segment, SegmentFiles
from data_prep.settings import BuildSettings, DamagedFiles
from data_prep.sources.source import (
    EXPECTED_SKIPS,
    INVALID_UTF8,
    CannotReadOn,
    CorpusError,
    FileSource,
    Source,
)
from data_prep.text.sampling import EvenSample

# A source is judged at its end, and where so many segments, 64 MB, are done: the beginning of a
# terabyte decides, rather than hours later the whole.
EARLY_SEGMENTS = 8
SEGMENT_RECORDS = 1 << 16  # most documents and skipped places of a segment: empty ones take memory
MOST_SKIPPED: dict[DamagedFiles, float] = {"stop": 0.02, "skip": 0.5}  # of a source


def read_segments(workplace: Path) -> list[ReadSegment]:
    """Return the complete segments, up to the first that is missing."""
    found: list[ReadSegment] = []
    while record := ReadSegment.load(SegmentFiles(workplace, len(found)).path("read.json")):
        found.append(record)
    return found


def read_sources(
    sources: list[Source],
    settings: BuildSettings,
    workplace: Path,
    pool: Workers,
    *,
    segment_bytes: int,
) -> list[ReadSegment]:
    """Read and clean the missing segments, and return all segments.

    Raises:
        CorpusError: A source cannot be read or holds no text, too much of it is skipped, or all of
            them hold a single document.
    """
    segments: list[ReadSegment] = []
    own: list[ReadSegment] = []  # those of the source that is read
    num_words, most_words = 0, settings.max_words or math.inf
    known = [source.num_bytes for source in sources]
    total = None if None in known else sum(size for size in known if size is not None)
    done = read_segments(workplace)
    tasks = _read_tasks(sources, settings, workplace, done, segment_bytes)
    with progress_bar("reading", total, "B") as bar:
        for segment in itertools.chain(done, pool.map(ReadTask.run, tasks)):
            if own and own[-1].source != segment.source:
                own = []
            bar.update(segment.read_bytes - (own[-1].read_bytes if own else 0))
            segments.append(segment)
            own.append(segment)
            num_words += segment.words
            is_enough = num_words >= most_words
            if segment.is_last or is_enough or len(own) >= EARLY_SEGMENTS:
                _refuse_skipped(own, sources[segment.source], settings)
            if len(own) == EARLY_SEGMENTS and sum(one.begun for one in own) <= 1:
                name = sources[segment.source].name
                print(f"warning: {name}: one document so far; {PARTED}", file=sys.stderr)
            if is_enough:  # workers may have read ahead
                sources, unread = sources[: segment.source + 1], sources[segment.source + 1 :]
                for source in unread:
                    print(f"note: {source.name}: not read, max_words is reached", file=sys.stderr)
                break
    for number, source in enumerate(sources):
        own = [segment for segment in segments if segment.source == number]
        if not any(segment.documents for segment in own):
            counts = ", ".join(f"{what}: {count}" for what, count in counts_of(*own).items())
            raise CorpusError(
                f"{source.name}: no text at all; it is empty, or all of it was skipped or dropped"
                + (f" ({counts})" if counts else "")
            )
    if sum(segment.begun for segment in segments) <= 1:
        raise CorpusError(
            f"{', '.join(source.name for source in sources)}: a single document, which cannot be "
            f"split into train and valid; give more text, or {PARTED}"
        )
    return segments


def counts_of(*parts: ReadSegment | Segment) -> Counter[str]:
    """Return the counts of what reading and cleaning changed and left out."""
    return sum((Counter(part.cleaning) for part in parts), Counter[str]())


def _read_tasks(
    sources: list[Source],
    settings: BuildSettings,
    workplace: Path,
    done: list[ReadSegment],
    segment_bytes: int,
) -> Iterator[ReadTask]:
    """Yield the segments that are missing; each ends with a document."""
    number = len(done)
    first = done[-1].source + done[-1].is_last if done else 0
    for place, source in enumerate(sources[first:], start=first):
        # Without most of its files: each segment is sent to a process.
        lean = replace(source, files=source.files[:1]) if isinstance(source, FileSource) else source
        task = ReadTask(SegmentFiles(workplace, number), place, lean, [], settings)
        if done and done[-1].source == place:
            last = done[-1]
            task = task._replace(end=last.end, num_raw=last.num_raw, read_bytes=last.read_bytes)
        sample = EvenSample(min(1.0, source.weight))
        first_byte, size, num_skipped = task.read_bytes, 0, 0
        for found in source.read(task.end):
            num_skipped += len(found.skipped)
            if taken := not found.is_record or sample.takes(task.num_raw):
                task.found.append(found)
                size += len(found.text)
            task = task._replace(
                end=found.end,
                num_raw=task.num_raw + found.is_record,
                num_left_out=task.num_left_out + (not taken),
                read_bytes=found.read_bytes,
            )
            is_full = len(task.found) + num_skipped >= SEGMENT_RECORDS
            if is_full or max(size, task.read_bytes - first_byte) >= segment_bytes:
                yield task
                number += 1
                files = SegmentFiles(workplace, number)
                task = task._replace(files=files, found=[], num_left_out=0)
                first_byte, size, num_skipped = task.read_bytes, 0, 0
        yield task._replace(is_last=True)
        number += 1


def _refuse_skipped(segments: list[ReadSegment], source: Source, settings: BuildSettings) -> None:
    """Refuse a source, or the beginning of one, of which more than the allowed share is skipped."""
    units = sum(segment.units for segment in segments)
    num_skipped = sum(segment.units_skipped for segment in segments)
    most = MOST_SKIPPED[settings.damaged_files]
    if num_skipped <= most * units:
        return
    places = [segment.first_skipped for segment in segments if segment.first_skipped]
    first = min(places, key=lambda one: one.reason in EXPECTED_SKIPS)
    can_skip = num_skipped <= units / 2
    raise (CannotReadOn if can_skip else CorpusError)(
        f"{source.name}: {num_skipped:,} of {units:,} {source.unit} were skipped "
        f"({num_skipped / units:.1%}, allowed: {most:.0%}): {first.reason}, first in {first.file} "
        f"line {first.line}; fix or remove them"
        + (", or convert the file with iconv" if first.reason == INVALID_UTF8 else "")
        + ("; to build without them: --data.damaged_files skip" if can_skip else "")
    )
