"""The last step of a build: cut the token ids of all segments into rows and write the shards."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple, get_args

from data_prep.files.atomic import save_text
from data_prep.files.progress_bar import progress_bar
from data_prep.files.workers import Workers
from data_prep.pipeline.reading import TooLittleText, in_brackets
from data_prep.pipeline.segments import EncodedSegment, Segment, SegmentFiles, TextCounts
from data_prep.settings import BuildSettings
from data_prep.shards.folders import CONTENT
from data_prep.shards.manifest import ShardRecord, SplitName, SplitRecord, TokenizerRecord
from data_prep.shards.packing import (
    RowFormat,
    ShardTask,
    TokenFile,
    TokenStream,
    rows_dropped,
    shard_tasks,
)
from data_prep.text.sampling import passes

WRITTEN = "written"  # folder in the working folder: a record for each finished shard


def write_shards(
    segments: list[Segment],
    encoded: list[EncodedSegment],
    tokenizer: TokenizerRecord,
    settings: BuildSettings,
    workplace: Path,
    pool: Workers,
) -> dict[SplitName, SplitRecord]:
    """Write the files of both splits that are missing, and describe all.

    Raises:
        TooLittleText: A split does not fill a row.
    """
    row_format = RowFormat.of(tokenizer, settings.sequence_length)
    weights = [segment.weight for segment in segments]
    splits: dict[SplitName, SplitRecord] = {}
    for name in get_args(SplitName):
        stream = TokenStream(_token_files(segments, encoded, name), row_format.dtype)
        counts = _total(encoded, weights, name)
        tasks = shard_tasks(name, stream, row_format, max_rows_per_shard=settings.rows_per_shard)
        if not tasks:
            raise TooLittleText(
                f"{', '.join(settings.corpus)}: the {name} split has {counts.tokens} "
                f"tokens, too few for one sequence of {settings.sequence_length}"
                f"{in_brackets(cleaning_of(segments))}; use more text, a shorter "
                "sequence_length or another valid_fraction"
            )
        records = _write_files(name, tasks, workplace, pool)
        splits[name] = SplitRecord(
            **counts.model_dump(),
            rows=sum(record.rows for record in records),
            rows_per_shard=records[0].rows,
            rows_dropped=rows_dropped(tasks),
            shards=tuple(records),
        )
    return splits


def cleaning_of(segments: list[Segment]) -> dict[str, int]:
    """Return the counts of what reading and cleaning changed and left out."""
    counts: Counter[str] = Counter()
    for segment in segments:
        counts.update(segment.read.cleaning)
        counts.update(segment.kept.cleaning)
    return dict(sorted(counts.items()))


def _token_files(
    segments: list[Segment], encoded: list[EncodedSegment], name: SplitName
) -> tuple[TokenFile, ...]:
    """Return the token files of a split in order; training text pass by pass."""
    if name == "valid":
        pairs = zip(segments, encoded, strict=True)
        return tuple(_token_file(segment.files, "valid", record.valid) for segment, record in pairs)
    found = []
    for number, is_whole in passes([segment.weight for segment in segments]):
        segment, record = segments[number], encoded[number]
        if is_whole or segment.weight < 1:  # a weight below 1 was applied when the text was read
            found.append(_token_file(segment.files, "train", record.train))
        else:
            found.append(_token_file(segment.files, "repeated", record.repeated))
    return tuple(found)


def _token_file(files: SegmentFiles, kind: str, counts: TextCounts) -> TokenFile:
    return TokenFile(files.path(f"{kind}.ids"), counts.tokens + counts.documents)


def _total(encoded: list[EncodedSegment], weights: list[float], name: SplitName) -> TextCounts:
    """Return the counts of a split, repetitions included."""
    total = TextCounts()
    for record, weight in zip(encoded, weights, strict=True):
        if name == "valid":
            total = total.plus(record.valid)
        else:
            total = total.plus(record.train, times=max(1, int(weight))).plus(record.repeated)
    return total


def _write_files(
    name: SplitName, tasks: list[ShardTask], workplace: Path, pool: Workers
) -> list[ShardRecord]:
    jobs = (_ShardJob(task, workplace) for task in tasks)
    records = []
    with progress_bar(f"{name} sequences", sum(task.num_rows for task in tasks), "sequence") as bar:
        for record in pool.map(_ShardJob.run, jobs):
            records.append(record)
            bar.update(record.rows)
    return records


class _ShardJob(NamedTuple):
    """A file of rows to write, unless an earlier call has written it."""

    task: ShardTask
    workplace: Path

    def run(self) -> ShardRecord:
        record_file = self.workplace / WRITTEN / f"{self.task.file}.json"
        if record_file.exists():
            return ShardRecord.model_validate_json(record_file.read_bytes())
        record = self.task.write(self.workplace / CONTENT)
        save_text(record_file, record.model_dump_json())
        return record
