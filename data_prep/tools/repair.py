"""Make a damaged shard folder usable again: drop what is broken, or build it anew.

Nothing is deleted or moved but by building anew: files that were dropped stay in the folder,
unnamed. The new manifest replaces the old one in one step.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from data_prep.files.atomic import replace
from data_prep.settings import BuildSettings
from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import (
    MANIFEST_FILE,
    REBUILD,
    TOKENIZER_FILE,
    Manifest,
    ShardError,
    ShardRecord,
    SplitName,
    SplitRecord,
    check_counts,
    check_tokenizer,
    read_manifest,
    sha256_of,
    write_manifest,
)
from data_prep.shards.unpacking import count_stored
from data_prep.tools.verify import broken_shards, folder_problems, usual_rows


class Repair(NamedTuple):
    """What there was to do, in words; all empty if nothing was wrong."""

    problems: tuple[str, ...]
    losses: tuple[str, ...]


def repair(folder: Path, *, dry_run: bool = False, progress: bool = False) -> Repair:
    """Drop broken files from the manifest and say exactly what was lost.

    The documents and tokens of a split that lost something are counted anew; its words and
    sentences become unknown.

    Args:
        folder: A shard folder.
        dry_run: Only say what would be done.
        progress: Whether to show progress on stderr.

    Raises:
        ShardError: The manifest or the tokenizer is unusable, or nothing would be left of a split.
    """
    manifest = _usable_manifest(folder)
    broken = broken_shards(folder, manifest, progress=progress)
    problems = [*folder_problems(folder, manifest), *broken.values()]
    kept = {name: _without(split, broken) for name, split in manifest.splits.items()}
    for name, shards in kept.items():
        if not shards:
            raise ShardError(
                f"{folder}: every file of {name} is broken, so that nothing would be left of it "
                f"({next(iter(broken.values()))}); use repair --rebuild, or {REBUILD}"
            )
    losses = [
        _loss(name, split, broken, manifest.sequence_length)
        for name, split in manifest.splits.items()
        if len(kept[name]) < len(split.shards)
    ]
    if problems and not dry_run:
        _write_repaired(folder, manifest, kept, losses)
    return Repair(tuple(problems), tuple(losses))


def rebuild(folder: Path, *, progress: bool = True, workers: int | None = None) -> Repair:
    """Build the folder anew beside itself and put what is broken in its place.

    Only files that become what they were, byte for byte, are put into the folder; files that an
    earlier repair dropped come back too. If the text has become another one, nothing is changed
    and the new build stays beside the folder.

    Raises:
        ShardError: There is no usable manifest, the shards were not made by `build`, or their
            sources have changed.
        CorpusError: The sources cannot be read.
    """
    from data_prep.pipeline.build import build  # it loads what only a build needs

    manifest = read_manifest(folder)
    problems = [
        *folder_problems(folder, manifest),
        *broken_shards(folder, manifest, progress=progress).values(),
    ]
    if not problems and not manifest.history:
        return Repair((), ())
    settings = _build_settings(folder, manifest)
    side = folder.with_name(f"{folder.name}.rebuilt")
    new = read_manifest(side) if side.exists() else None
    if new is None:
        new = build(settings, side, progress=progress, workers=workers)
    _refuse_other_text(folder, manifest, side, new)
    restored = _take_over(folder, side, new)
    line = f"repair: built {', '.join(restored) or 'nothing'} again"
    write_manifest(folder, new.model_copy(update={"history": (*manifest.history, line)}))
    shutil.rmtree(side)
    return Repair(tuple(problems), (line,))


def _usable_manifest(folder: Path) -> Manifest:
    """Return the manifest, if there is something to keep rows by."""
    try:
        manifest = read_manifest(folder)
    except ShardError as error:
        raise ShardError(f"{error} (without a manifest, repair does not know the rows)") from error
    try:
        check_tokenizer(folder, manifest)
    except ShardError as error:
        raise ShardError(
            f"{str(error).removesuffix(f'; {REBUILD}')}; without it the rows mean nothing, and "
            f"dropping files does not help: use repair --rebuild, or {REBUILD}"
        ) from error
    return manifest


def _without(split: SplitRecord, broken: dict[str, str]) -> tuple[ShardRecord, ...]:
    return tuple(record for record in split.shards if record.file not in broken)


def _loss(name: SplitName, split: SplitRecord, broken: dict[str, str], sequence_length: int) -> str:
    lost = [record for record in split.shards if record.file in broken]
    num_rows = sum(record.rows for record in lost)
    share = num_rows / sum(record.rows for record in split.shards)
    return (
        f"{name}: {', '.join(record.file for record in lost)} with {num_rows:,} rows, "
        f"{num_rows * (sequence_length - 2):,} tokens, {share:.2%} of the split"
    )


def _write_repaired(
    folder: Path,
    manifest: Manifest,
    kept: dict[SplitName, tuple[ShardRecord, ...]],
    losses: list[str],
) -> None:
    """Write the manifest of what is left."""
    splits = {}
    for name, split in manifest.splits.items():
        rows_per_shard = usual_rows(split)
        splits[name] = split.model_copy(
            update={
                "shards": kept[name],
                "rows_per_shard": rows_per_shard,
                "rows": rows_per_shard * len(kept[name]),
            }
        )
    history = (*manifest.history, *(f"repair: dropped {loss}" for loss in losses))
    repaired = manifest.model_copy(update={"splits": splits, "history": history})
    check_counts(folder, repaired)
    for name, split in repaired.splits.items():
        if len(split.shards) < len(manifest.splits[name].shards):
            documents, tokens = count_stored(ShardSet(folder, repaired), name)
            known = {"documents": documents, "tokens": tokens, "words": None, "sentences": None}
            splits[name] = split.model_copy(update=known)
    write_manifest(folder, repaired.model_copy(update={"splits": splits}))


def _build_settings(folder: Path, manifest: Manifest) -> BuildSettings:
    if "command" in manifest.settings:
        raise ShardError(
            f"{folder}: was made by {manifest.settings['command']}, not by build; "
            "give that command again"
        )
    try:
        return BuildSettings.model_validate(manifest.settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise ShardError(
            f"{folder / MANIFEST_FILE}: settings.{'.'.join(map(str, first['loc']))}: "
            f"{first['msg']}; {REBUILD}"
        ) from error


def _refuse_other_text(folder: Path, manifest: Manifest, side: Path, new: Manifest) -> None:
    """Refuse a new build that differs from the old one in anything that the old one still has."""
    rebuilt = {record.file: record.sha256 for s in new.splits.values() for record in s.shards}
    records = [record for split in manifest.splits.values() for record in split.shards]
    other = [record.file for record in records if rebuilt.get(record.file) != record.sha256]
    if new.tokenizer != manifest.tokenizer:
        other.append(TOKENIZER_FILE)
    if other:
        raise ShardError(
            f"{folder}: its sources, or the programs that read them, have changed: {len(other)} of "
            f"{len(records)} files would not be what they were, such as {other[-1]}; nothing was "
            f"changed; the new build is in {side}: use that one, or remove it"
        )


def _take_over(folder: Path, side: Path, new: Manifest) -> list[str]:
    """Move the files that are broken or missing from a new build, and return their names."""
    wanted = {record.file: record.sha256 for s in new.splits.values() for record in s.shards}
    wanted[TOKENIZER_FILE] = new.tokenizer.sha256
    restored = []
    for name, sha256 in wanted.items():
        file = folder / name
        if not file.is_file() or file.is_symlink() or sha256_of(file) != sha256:
            replace(side / name, file)
            restored.append(name)
    return restored
