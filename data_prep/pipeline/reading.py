"""Read the sources of a build segment by segment, continuing after the last complete one."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from data_prep.files.progress_bar import progress_bar
from data_prep.files.workers import Workers
from data_prep.pipeline.refusals import SkippedShare
from data_prep.pipeline.segments import SKIPPED, ReadSegment, ReadTask, SegmentFiles
from data_prep.settings import BuildSettings
from data_prep.sources.source import CorpusError, RawDocument, Source
from data_prep.sources.text import TextFiles
from data_prep.text.sampling import EvenSample


class TooLittleText(CorpusError):
    """The sources hold too little text for a held-out document or for one row of a split."""


def read_segments(workplace: Path) -> list[ReadSegment]:
    """Return the complete segments, up to the first that is missing."""
    found: list[ReadSegment] = []
    while record := ReadSegment.load(_record_file(workplace, len(found))):
        found.append(record)
    return found


def discard_segments(workplace: Path, source: int, file: int) -> int:
    """Discard the segments with text of this file of a source, or later; return their number.

    Also the last one of that source: with a file more it is not the last.
    """
    segments = read_segments(workplace)
    num_kept = sum(
        (segment.source, *segment.end) <= (source, file, 0)
        and not (segment.source == source and segment.is_last)
        for segment in segments
    )
    # Also those of a killed call behind a missing one.
    for record in _record_file(workplace, 0).parent.glob("*.read.json"):
        if int(record.name.split(".")[0]) >= num_kept:
            record.unlink()
    return len(segments) - num_kept


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
        CorpusError: A source cannot be read, or too much of it is skipped.
        TooLittleText: A source holds no text, or all of them a single document.
    """
    segments = _up_to_enough(read_segments(workplace), settings)
    skipped = SkippedShare(sources, settings.damaged_files)
    for segment in segments:
        skipped.add(segment)
    known = [source.num_bytes for source in sources]
    total = None if None in known else sum(size for size in known if size is not None)
    with progress_bar("reading", total, "B") as bar:
        bar.update(_bytes_read(segments))
        if not _enough_words(segments, settings):
            tasks = _read_tasks(sources, settings, workplace, segments, segment_bytes)
            for segment in pool.map(ReadTask.run, tasks):
                before = _bytes_read(segments)
                segments.append(segment)
                skipped.add(segment)
                bar.update(_bytes_read(segments) - before)
                if _enough_words(segments, settings):
                    break
    skipped.check()
    _refuse_too_little(segments, sources, settings)
    return segments


def _read_tasks(
    sources: list[Source],
    settings: BuildSettings,
    workplace: Path,
    done: list[ReadSegment],
    segment_bytes: int,
) -> Iterator[ReadTask]:
    """Yield the segments that are missing."""
    number = len(done)
    first = done[-1].source + done[-1].is_last if done else 0
    for source in range(first, len(sources)):
        files = SegmentFiles(workplace, number)
        task = ReadTask(files, source, sources[source], [], settings)
        if done and done[-1].source == source:
            last = done[-1]
            task = task._replace(end=last.end, num_raw=last.num_raw, read_bytes=last.read_bytes)
        for part in _parts(task, segment_bytes):
            yield part._replace(files=SegmentFiles(workplace, number))
            number += 1


def _parts(task: ReadTask, segment_bytes: int) -> Iterator[ReadTask]:
    """Yield the segments of a source; each ends with a document."""
    sample = EvenSample(min(1.0, task.source.weight))
    first_byte, size = task.read_bytes, 0
    for raw in task.source.raw_documents(task.end):
        if not isinstance(raw, RawDocument):
            task.raw.append(raw)
            continue
        taken = sample.takes(task.num_raw)
        if taken:
            task.raw.append(raw)
            size += _size(raw)
        task = task._replace(
            end=raw.end,
            num_raw=task.num_raw + 1,
            num_left_out=task.num_left_out + (not taken),
            read_bytes=raw.read_bytes,
        )
        if max(size, task.read_bytes - first_byte) >= segment_bytes:
            yield task
            task = task._replace(raw=[], num_left_out=0)
            first_byte, size = task.read_bytes, 0
    if task.raw or task.num_left_out:
        yield task._replace(is_last=True)


def _refuse_too_little(
    segments: list[ReadSegment], sources: list[Source], settings: BuildSettings
) -> None:
    """Refuse sources without text, and a single document: it cannot be split."""
    read = settings.corpus
    if _enough_words(segments, settings):
        read = read[: segments[-1].source + 1]
    for number, name in enumerate(read):
        own = [segment for segment in segments if segment.source == number]
        if not any(segment.documents for segment in own):
            reasons: Counter[str] = Counter()
            for segment in own:
                reasons.update(segment.cleaning)
            raise TooLittleText(
                f"{name}: no text at all{in_brackets(reasons)}; {_remedy(sources[number], reasons)}"
            )
    if sum(segment.documents for segment in segments) == 1:
        remedy = "give a corpus of several documents"
        if any(isinstance(source, TextFiles) for source in sources):
            remedy = "put an empty line between documents, or add :documents=line to the name"
        raise TooLittleText(
            f"{', '.join(read)}: a single document, which cannot be split into train and valid; "
            f"{remedy}"
        )


def _remedy(source: Source, reasons: Counter[str]) -> str:
    """Return what can be done about a source of which no text is left."""
    if not source.num_bytes and source.num_bytes is not None:
        return "it is empty"
    if any(reason.startswith(SKIPPED) for reason in reasons):
        return "all of it was skipped"
    if any("dropped" in reason for reason in reasons):
        return "the settings of cleaning drop all of it"
    return "it holds nothing but white space"


def in_brackets(counts: Mapping[str, int]) -> str:
    """Return counts in brackets, for an error message."""
    found = ", ".join(f"{what}: {count}" for what, count in counts.items())
    return f" ({found})" if found else ""


def _up_to_enough(segments: list[ReadSegment], settings: BuildSettings) -> list[ReadSegment]:
    """Return the segments that a straight build uses: workers of a killed one had read ahead."""
    used: list[ReadSegment] = []
    for segment in segments:
        if _enough_words(used, settings):
            break
        used.append(segment)
    return used


def _enough_words(segments: list[ReadSegment], settings: BuildSettings) -> bool:
    limit = settings.max_words
    return limit is not None and sum(segment.words for segment in segments) >= limit


def _bytes_read(segments: list[ReadSegment]) -> int:
    return sum({segment.source: segment.read_bytes for segment in segments}.values())


def _record_file(workplace: Path, number: int) -> Path:
    return SegmentFiles(workplace, number).path("read.json")


def _size(raw: RawDocument) -> int:
    content = raw.content
    return sum(map(len, content)) if isinstance(content, list) else len(content)
