"""Say whether an unfinished build may be gone on with: same settings, sources and libraries."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from data_prep.files.atomic import save_text
from data_prep.pipeline.reading import forget_segments, read_segments
from data_prep.pipeline.segments import TOKENIZER_RECORD, SegmentFiles
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import ShardError
from data_prep.sources.source import Source

# Other versions of these may read, cut or encode the same text differently.
LIBRARIES = ("tokenizers", "sentencex", "spacy", "sacremoses", "mwparserfromhell", "h5py")

# Settings that decide whether a build goes on, and not what it makes of the text.
FREE = {"damaged_files"}


def check_identity(settings: BuildSettings, sources: list[Source], workplace: Path) -> int:
    """Write down what is being built, or compare it with what an earlier call wrote down.

    Files that were added, removed or changed are no obstacle while the text is still being read:
    what was read of them, and of all that follow, is forgotten and read again.

    Returns:
        The number of segments that were forgotten.

    Raises:
        ShardError: The earlier call had other settings, sources or libraries.
    """
    identity = {
        "settings": settings.model_dump(mode="json", exclude=FREE),
        "libraries": {name: version(name) for name in LIBRARIES},
        "sources": [source.identity() for source in sources],
    }
    now: dict[str, Any] = json.loads(json.dumps(identity))
    file = workplace / "identity.json"
    # Where nothing was read yet, nothing is lost by beginning anew.
    goes_on = file.exists() and bool(read_segments(workplace))
    before: dict[str, Any] = json.loads(file.read_text()) if goes_on else now
    if not goes_on:
        (workplace / TOKENIZER_RECORD).unlink(missing_ok=True)
    for part in ("settings", "libraries"):
        for name in now[part]:
            then, today = before[part].get(name), now[part][name]
            if then != today:
                raise _other_build(workplace, f"{name} was {then!r} and is {today!r}")
    num_forgotten = 0
    if before["sources"] != now["sources"]:
        if SegmentFiles(workplace, 0).path("kept.json").exists():
            raise _other_build(workplace, "files of its corpus have changed since")
        changed = _first_difference(before["sources"], now["sources"])
        num_forgotten = forget_segments(workplace, *changed)
    save_text(file, json.dumps(now, indent=1))
    return num_forgotten


def _first_difference(before: list[list[Any]], now: list[list[Any]]) -> tuple[int, int]:
    """Return the source and the file from which on two lists of files differ."""
    source = next(
        n for n, (then, today) in enumerate(zip(before, now, strict=True)) if then != today
    )
    then, today = before[source], now[source]
    same = (n for n, pair in enumerate(zip(then, today, strict=False)) if pair[0] != pair[1])
    return source, next(same, min(len(then), len(today)))


def _other_build(workplace: Path, difference: str) -> ShardError:
    return ShardError(
        f"{workplace}: holds an unfinished build of something else ({difference}); repeat its "
        "command to finish it, or remove that folder to begin anew"
    )
