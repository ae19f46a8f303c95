"""Restore damaged files of a shard folder from its corpus.

Builds the folder again from the corpus that its manifest names, and replaces what is damaged or
missing: a build is a function of the text and the settings, so each restored file is the lost one,
byte for byte. Changes nothing if the text has changed since.
"""

import argparse
import shutil
from pathlib import Path

from data_prep.command_line import explained
from data_prep.commands.options import add_options
from data_prep.commands.verify import verify
from data_prep.files.atomic import put_in_place
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo data repair`."""
    add_options(parser, "folder", "--workers")


def main(arguments: argparse.Namespace) -> None:
    """Repair the folder, and print what was restored."""
    restored = repair(arguments.folder, workers=arguments.workers)
    done = f"restored {', '.join(restored)}" if restored else "nothing to repair"
    print(f"{arguments.folder}: {done}")


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
    if command := manifest.settings.get("command"):
        raise ShardError(
            f"{folder}: made by {command}, not by build: it cannot be built again; make a new "
            "folder"
        )
    place = folder / MANIFEST_FILE
    with explained(f"{place}: settings: ", end=f"; {REBUILD}", kind=ShardError):
        # What was skipped when the folder was built is skipped again.
        known = without_removed({"data": manifest.settings})["data"]
        settings = BuildSettings.model_validate(known | {"damaged_files": "skip"})
        tokenizer = folder / TOKENIZER_FILE
        # One that is whole is used: those of earlier versions would not be trained again.
        if tokenizer.is_file() and sha256_of(tokenizer) == manifest.tokenizer.sha256:
            loaded = {"tokenizer": str(folder), "lowercase": True, "strip_accents": None}
            settings = settings.model_copy(update=loaded)
    side = folder.resolve().with_name(f"{folder.resolve().name}.rebuilt")
    rebuilt = read_manifest(side) if side.exists() else build(settings, side, workers=workers)
    hashes = _hashes(rebuilt)
    other = [name for name, sha256 in _hashes(manifest).items() if hashes.get(name) != sha256]
    if other:
        raise ShardError(
            f"{folder}: its sources, or the libraries that read them, have changed: {len(other)} "
            f"of {len(hashes)} files would differ, such as {other[0]}; "
            f"nothing was changed; the new build is in {side}: use that one, or remove it"
        )
    restored = []
    for name, sha256 in hashes.items():
        file = folder / name
        if not file.is_file() or file.is_symlink() or sha256_of(file) != sha256:
            put_in_place(side / name, file)
            restored.append(name)
    line = f"repair: built {', '.join(restored) or 'nothing'} again"
    history = (*manifest.history, line)
    kept = {name: getattr(manifest, name) for name in ("settings", "tokenizer")}
    kept["history"] = history
    write_manifest(folder, rebuilt.model_copy(update=kept))
    shutil.rmtree(side)
    return restored or [MANIFEST_FILE]


def _hashes(manifest: Manifest) -> dict[str, str]:
    """Return the sha256 of each file that the manifest names."""
    records = [record for split in manifest.splits.values() for record in split.shards]
    named = {record.file: record.sha256 for record in records}
    return named | {TOKENIZER_FILE: manifest.tokenizer.sha256}
