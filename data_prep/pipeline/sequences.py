"""The last step of a build: cut the token ids of all segments into sequences, write the shards."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple, get_args

from data_prep.files.atomic import save_text
from data_prep.files.progress_bar import progress_bar
from data_prep.files.workers import Workers
from data_prep.pipeline.reading import TooLittleText, counts_of, in_brackets
from data_prep.pipeline.segments import EncodedSegment, Segment, TextCounts
from data_prep.settings import BuildSettings
from data_prep.shards.folders import CONTENT
from data_prep.shards.manifest import ShardRecord, SplitName, SplitRecord, TokenizerRecord
from data_prep.shards.packing import (
    SequenceFormat,
    ShardTask,
    TokenFile,
    TokenStream,
    shard_tasks,
    split_record,
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
        TooLittleText: A split does not fill a sequence.
    """
    form = SequenceFormat.of(tokenizer, settings.sequence_length)
    splits: dict[SplitName, SplitRecord] = {}
    for name in get_args(SplitName):
        stream = TokenStream(_token_files(segments, encoded, name), form.dtype)
        counts = _total(segments, encoded, name)
        tasks = shard_tasks(name, stream, form, longest=settings.rows_per_shard)
        if not tasks:
            raise TooLittleText(
                f"{', '.join(settings.corpus)}: the {name} split has {counts.tokens} "
                f"tokens, too few for one sequence of {settings.sequence_length}"
                f"{in_brackets(cleaning_of(segments))}; use more text, a shorter "
                "sequence_length or another valid_fraction"
            )
        total = sum(task.num_sequences for task in tasks)
        records = []
        with progress_bar(f"{name} sequences", total, "sequence") as bar:
            for record in pool.map(_ShardJob.run, (_ShardJob(task, workplace) for task in tasks)):
                records.append(record)
                bar.update(record.rows)
        splits[name] = split_record(tasks, records, **counts.model_dump())
    return splits


def cleaning_of(segments: list[Segment]) -> Counter[str]:
    """Return the counts of what reading and cleaning changed and left out."""
    counts = counts_of([segment.read for segment in segments])
    for segment in segments:
        counts.update(segment.kept.cleaning)
    return Counter(dict(sorted(counts.items())))


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


def _total(segments: list[Segment], encoded: list[EncodedSegment], name: SplitName) -> TextCounts:
    """Return the counts of a split, repetitions included."""
    total = TextCounts()
    for segment, record in zip(segments, encoded, strict=True):
        if name == "valid":
            total = total.plus(record.valid)
        else:
            total = total.plus(record.train, max(1, int(segment.weight))).plus(record.repeated)
    return total


class _ShardJob(NamedTuple):
    """A file of sequences to write, unless an earlier call has written it."""

    task: ShardTask
    workplace: Path

    def run(self) -> ShardRecord:
        record_file = self.workplace / WRITTEN / f"{self.task.file}.json"
        if record_file.exists():
            return ShardRecord.model_validate_json(record_file.read_bytes())
        record = self.task.write(self.workplace / CONTENT)
        save_text(record_file, record.model_dump_json())
        return record
