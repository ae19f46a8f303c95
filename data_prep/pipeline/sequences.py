"""The last step of a build: cut the token ids of all segments into sequences, write the shards."""

from collections import Counter
from pathlib import Path
from typing import get_args

from data_prep.files.workers import Workers
from data_prep.pipeline.segments import EncodedSegment, Segment
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import SplitName, SplitRecord, TokenizerRecord
from data_prep.shards.packing import SequenceFormat, TokenFile, TokenStream, write_split
from data_prep.text.sampling import passes


def write_shards(
    segments: list[Segment],
    encoded: list[EncodedSegment],
    tokenizer: TokenizerRecord,
    settings: BuildSettings,
    content: Path,
    pool: Workers,
) -> dict[SplitName, SplitRecord]:
    """Write the files of both splits that are missing, and describe all.

    Raises:
        ShardError: A split does not fill a sequence.
    """
    form = SequenceFormat(settings.sequence_length, tokenizer)
    return {
        name: write_split(
            *(content, name, TokenStream(_token_files(segments, encoded, name), form.dtype), form),
            longest=settings.rows_per_shard,
            counts=_total(segments, encoded, name),
            run=pool.map,
        )
        for name in get_args(SplitName)
    }


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
