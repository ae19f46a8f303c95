"""Check that an unfinished build may be resumed: same settings, sources and libraries."""

import json
from pathlib import Path
from typing import Any

from data_prep.files.atomic import save_text
from data_prep.files.extras import require
from data_prep.pipeline.reading import discard_segments, read_segments
from data_prep.pipeline.segments import TOKENIZER_RECORD, SegmentFiles
from data_prep.settings import STOPPING_SETTINGS, BuildSettings
from data_prep.shards.manifest import ShardError
from data_prep.sources.source import CorpusError, Source

IDENTITY_FILE = "identity.json"


def check_identity(settings: BuildSettings, sources: list[Source], workplace: Path) -> int:
    """Record the identity of a build, or compare it with the record of an earlier call.

    Files may change, appear or disappear while the text is still being read: the segments from the
    first difference on are discarded and read again.

    Returns:
        The number of segments that were discarded.

    Raises:
        ShardError: The earlier call had other settings, sources or libraries.
        MissingPackage: A package that this build needs is not installed.
    """
    identity = {
        "settings": settings.model_dump(mode="json", exclude=set(STOPPING_SETTINGS)),
        "libraries": _versions(settings, sources),
        "sources": [source.identity() for source in sources],
    }
    now: dict[str, Any] = json.loads(json.dumps(identity))
    file = workplace / IDENTITY_FILE
    # Before the first segment is complete nothing is lost by starting again.
    is_resumed = file.exists() and bool(read_segments(workplace))
    before: dict[str, Any] = json.loads(file.read_text()) if is_resumed else now
    if not is_resumed:
        (workplace / TOKENIZER_RECORD).unlink(missing_ok=True)
        discard_segments(workplace, 0, 0)  # later ones may be complete, and of another text
    for part in ("settings", "libraries"):
        for name in now[part]:
            today = now[part][name]
            if (then := before[part].get(name, today)) != today:
                raise _other_build(workplace, f"{name} was {then!r} and is {today!r}")
    num_discarded = 0
    if before["sources"] != now["sources"]:
        if SegmentFiles(workplace, 0).path("kept.json").exists():
            raise _other_build(workplace, "files of its corpus have changed since")
        changed = _first_difference(before["sources"], now["sources"])
        num_discarded = discard_segments(workplace, *changed)
    save_text(file, json.dumps(now, indent=1))
    return num_discarded


def _versions(settings: BuildSettings, sources: list[Source]) -> dict[str, str]:
    """Return the versions of the packages that read, split or encode the text of this build."""
    used = ["tokenizers", "h5py", settings.sentences, *(["sacremoses"] if settings.moses else [])]
    for source in sources:
        used += source.libraries
    return {name: require(name, by="this build") for name in used}


def refuse_changed(sources: list[Source], workplace: Path) -> None:
    """Refuse a corpus that changed while it was being read: parts of it may be of no version.

    Raises:
        CorpusError: It names the first file.
    """
    before = json.loads((workplace / IDENTITY_FILE).read_text())["sources"]
    now = json.loads(json.dumps([source.identity() for source in sources]))
    if before == now:
        return
    source, file = _first_difference(before, now)
    name = before[source][file][0]
    raise CorpusError(
        f"{name}: changed while it was being read; wait until nothing writes to it, and give the "
        "same command again"
    )


def _first_difference(before: list[list[Any]], now: list[list[Any]]) -> tuple[int, int]:
    """Return the source and the file at which two lists of files first differ."""
    source = next(
        n for n, (then, today) in enumerate(zip(before, now, strict=True)) if then != today
    )
    then, today = before[source], now[source]
    same = (n for n, pair in enumerate(zip(then, today, strict=False)) if pair[0] != pair[1])
    return source, next(same, min(len(then), len(today)))


def _other_build(workplace: Path, difference: str) -> ShardError:
    return ShardError(
        f"{workplace}: holds an unfinished build of something else ({difference}); repeat its "
        "command to finish it, or remove that folder to start again"
    )
