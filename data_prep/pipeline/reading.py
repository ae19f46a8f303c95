"""Read the sources of a build segment by segment, continuing after the last complete one."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data_prep.files.progress_bar import progress_bar
from data_prep.files.workers import Workers
from data_prep.pipeline.segments import SKIPPED, ReadSegment, ReadTask, SegmentFiles
from data_prep.settings import BuildSettings
from data_prep.sources.source import EXPECTED_SKIPS, INVALID_UTF8, CorpusError, Skipped, Source
from data_prep.sources.streams import conversion
from data_prep.sources.text import TextFiles
from data_prep.text.sampling import EvenSample

# A source is judged at its end, and where so many segments, 64 MB, are done: the beginning of a
# terabyte decides, rather than hours later the whole.
EARLY_SEGMENTS = 8
MOST_SKIPPED = 0.02  # of a source, unless damaged_files=skip


class TooLittleText(CorpusError):
    """The sources hold too little text for a held-out document or for one sequence of a split."""


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
        CorpusError: A source cannot be read, or too much of it is skipped.
        TooLittleText: A source holds no text, or all of them a single document.
    """
    segments: list[ReadSegment] = []
    own: list[ReadSegment] = []  # those of the source that is read
    num_words = 0
    known = [source.num_bytes for source in sources]
    total = None if None in known else sum(size for size in known if size is not None)

    def straight() -> Iterator[ReadSegment]:
        """Yield the segments as a straight build reads them: workers may have read ahead."""
        done = read_segments(workplace)
        yield from done
        yield from pool.map(
            ReadTask.run, _read_tasks(sources, settings, workplace, done, segment_bytes)
        )

    with progress_bar("reading", total, "B") as bar:
        for segment in straight():
            if segments and segments[-1].source != segment.source:
                _refuse_skipped(own, sources[own[-1].source], settings)
                own = []
            bar.update(segment.read_bytes - (own[-1].read_bytes if own else 0))
            segments.append(segment)
            own.append(segment)
            num_words += segment.words
            if segment.is_last or len(own) >= EARLY_SEGMENTS:
                _refuse_skipped(own, sources[segment.source], settings)
            if settings.max_words is not None and num_words >= settings.max_words:
                break
    if own:
        _refuse_skipped(own, sources[own[-1].source], settings)
    is_cut = settings.max_words is not None and num_words >= settings.max_words
    _refuse_too_little(segments, sources[: segments[-1].source + 1] if is_cut else sources)
    return segments


def counts_of(segments: list[ReadSegment]) -> Counter[str]:
    """Return the counts of what reading and cleaning changed and left out."""
    counts: Counter[str] = Counter()
    for segment in segments:
        counts.update(segment.cleaning)
    return counts


def in_brackets(counts: Counter[str]) -> str:
    """Return counts in brackets, for an error message."""
    found = ", ".join(f"{what}: {count}" for what, count in counts.items())
    return f" ({found})" if found else ""


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
        task = ReadTask(SegmentFiles(workplace, number), source, sources[source], [], settings)
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
    for found in task.source.read(task.end):
        if isinstance(found, Skipped):
            task.found.append(found)
            continue
        taken = sample.takes(task.num_raw)
        if taken:
            task.found.append(found)
            size += len(found.text)
        task = task._replace(
            end=found.end,
            num_raw=task.num_raw + 1,
            num_left_out=task.num_left_out + (not taken),
            read_bytes=found.read_bytes,
        )
        if max(size, task.read_bytes - first_byte) >= segment_bytes:
            yield task
            task = task._replace(found=[], num_left_out=0)
            first_byte, size = task.read_bytes, 0
    if task.found or task.num_left_out:
        yield task._replace(is_last=True)


def _refuse_skipped(segments: list[ReadSegment], source: Source, settings: BuildSettings) -> None:
    """Refuse a source, or the beginning of one, of which more than the allowed share is skipped."""
    units = sum(segment.units for segment in segments)
    num_skipped = sum(segment.units_skipped for segment in segments)
    if settings.damaged_files == "skip" or num_skipped <= MOST_SKIPPED * units:
        return
    counts, share = counts_of(segments), num_skipped / units
    places = [place for segment in segments for place in segment.skipped]
    first = {p.reason: p for p in reversed(places) if p.reason not in EXPECTED_SKIPS}
    place = max(first.values(), key=lambda place: counts[f"{SKIPPED}{place.reason}"])
    remedy = "fix or remove them"
    if place.reason == INVALID_UTF8 and "parquet" not in place.file:
        remedy = f"if it is, say, in WINDOWS-1252, {conversion(place.file, 'WINDOWS-1252')}"
    elif "column" in place.reason:
        remedy = "name the column of the text: column=NAME"
    elif "JSON" in place.reason:
        remedy = "every line must hold one JSON object, as jq -c writes them"
    raise CorpusError(
        f"{source.name}: {num_skipped:,} of {units:,} {source.unit} were skipped ({share:.1%}, "
        f"allowed: {MOST_SKIPPED:.1%}): {place.reason}, first in {place.file} line {place.line}; "
        f"{remedy}" + ("; to build without them: --data.damaged_files skip" if share < 0.5 else "")
    )


def _refuse_too_little(segments: list[ReadSegment], sources: list[Source]) -> None:
    """Refuse sources without text, and a single document: it cannot be split."""
    for number, source in enumerate(sources):
        own = [segment for segment in segments if segment.source == number]
        if not any(segment.documents for segment in own):
            raise TooLittleText(
                f"{source.name}: no text at all{in_brackets(counts_of(own))}; it is empty, or all "
                "of it was skipped or dropped"
            )
    if sum(segment.documents for segment in segments) == 1:
        remedy = "give a corpus of several documents"
        if any(isinstance(source, TextFiles) for source in sources):
            remedy = "put an empty line between documents, or add :documents=line to the name"
        raise TooLittleText(
            f"{', '.join(source.name for source in sources)}: a single document, which cannot be "
            f"split into train and valid; {remedy}"
        )
