"""Restore damaged files of a shard folder by building it again from its text.

A build is a function of the text and the settings, so each restored file is the lost one, byte for
byte. The folder changes only if that holds for every file it still has.
"""

import shutil
from pathlib import Path

from pydantic import ValidationError

from data_prep.files.atomic import replace
from data_prep.removed import without_removed
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import (
    MANIFEST_FILE,
    REBUILD,
    TOKENIZER_FILE,
    Manifest,
    ShardError,
    read_manifest,
    sha256_of,
    write_manifest,
)
from data_prep.tools.verify import verify


def repair(folder: Path, *, workers: int | None = None) -> list[str]:
    """Build the folder again beside itself, take over what is broken or missing, and name it.

    If the text has changed, nothing is changed and the new build stays beside the folder.

    Returns:
        The restored files; empty if nothing was wrong.

    Raises:
        ShardError: There is no usable manifest, the shards were not made by `build`, or their
            sources have changed.
        CorpusError: The sources cannot be read.
    """
    from data_prep.pipeline.build import build  # loads libraries that only a build needs

    manifest = read_manifest(folder)
    if not verify(folder):
        return []
    settings = _build_settings(folder, manifest)
    side = folder.with_name(f"{folder.name}.rebuilt")
    rebuilt = read_manifest(side) if side.exists() else build(settings, side, workers=workers)
    _refuse_other_text(folder, manifest, side, rebuilt)
    restored = _take_over(folder, side, rebuilt)
    line = f"repair: built {', '.join(restored) or 'nothing'} again"
    kept = {"settings": manifest.settings, "history": (*manifest.history, line)}
    write_manifest(folder, rebuilt.model_copy(update=kept))
    shutil.rmtree(side)
    return restored or [MANIFEST_FILE]


def _build_settings(folder: Path, manifest: Manifest) -> BuildSettings:
    if "command" in manifest.settings:
        raise ShardError(
            f"{folder}: made by {manifest.settings['command']}, not by build: it cannot be built "
            "again; make a new folder"
        )
    try:
        # However much was skipped when the folder was built, it is skipped again.
        settings = without_removed({"data": manifest.settings})["data"]
        return BuildSettings.model_validate(settings | {"damaged_files": "skip"})
    except ValidationError as error:
        first = error.errors()[0]
        raise ShardError(
            f"{folder / MANIFEST_FILE}: settings.{'.'.join(map(str, first['loc']))}: "
            f"{first['msg']}; {REBUILD}"
        ) from error


def _refuse_other_text(folder: Path, manifest: Manifest, side: Path, rebuilt: Manifest) -> None:
    """Refuse a new build that differs from what the old manifest names."""
    hashes = {record.file: record.sha256 for s in rebuilt.splits.values() for record in s.shards}
    records = [record for split in manifest.splits.values() for record in split.shards]
    other = [record.file for record in records if hashes.get(record.file) != record.sha256]
    if rebuilt.tokenizer != manifest.tokenizer:
        other.append(TOKENIZER_FILE)
    if other:
        raise ShardError(
            f"{folder}: its sources, or the libraries that read them, have changed: {len(other)} "
            f"of {len(records)} files would differ, such as {other[-1]}; nothing was changed; the "
            f"new build is in {side}: use that one, or remove it"
        )


def _take_over(folder: Path, side: Path, rebuilt: Manifest) -> list[str]:
    """Move the files that are broken or missing from a new build, and return their names."""
    wanted = {record.file: record.sha256 for s in rebuilt.splits.values() for record in s.shards}
    wanted[TOKENIZER_FILE] = rebuilt.tokenizer.sha256
    restored = []
    for name, sha256 in wanted.items():
        file = folder / name
        if not file.is_file() or file.is_symlink() or sha256_of(file) != sha256:
            replace(side / name, file)
            restored.append(name)
    return restored
