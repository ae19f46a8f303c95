"""Check that an unfinished build may be resumed: same settings, sources and libraries."""

import json
import shutil
from pathlib import Path
from typing import Any

from data_prep.files.atomic import save_text
from data_prep.files.extras import require
from data_prep.pipeline.reading import read_segments
from data_prep.settings import STOPPING_SETTINGS, BuildSettings
from data_prep.shards.manifest import TOKENIZER_FILE, ShardError
from data_prep.sources.source import CorpusError, Source

IDENTITY_FILE = "identity.json"


def check_identity(settings: BuildSettings, sources: list[Source], workplace: Path) -> None:
    """Record the identity of a build, or compare it with the record of an earlier call.

    Files may change, appear or disappear until all text is read: then it is read from its beginning
    again.

    Raises:
        ShardError: The earlier call had other settings, libraries, or text.
        MissingPackage: A package that this build needs is not installed.
    """
    moses = ["sacremoses"] if settings.moses else []
    packages = ["tokenizers", "h5py", settings.sentences, *moses]
    packages += [name for source in sources for name in source.libraries]
    now: dict[str, Any] = {
        "settings": settings.model_dump(mode="json", exclude=set(STOPPING_SETTINGS)),
        "libraries": {name: require(name, by="this build") for name in packages},
        "sources": _files_of(sources),
    }
    file, segments = workplace / IDENTITY_FILE, workplace / "segments"
    # Before the first segment is complete nothing is lost by starting again.
    before = json.loads(file.read_text()) if file.exists() and read_segments(workplace) else {}
    if before:
        found = [
            f"{name} was {before[part].get(name)!r} and is {today!r}"
            for part in ("settings", "libraries")
            for name, today in now[part].items()
            if before[part].get(name) != today
        ]
        if before["sources"] != now["sources"] and any(segments.glob("*.kept.json")):
            found.append("files of its corpus have changed since")
        if found:
            raise ShardError(
                f"{workplace}: holds an unfinished build of something else ({found[0]}); repeat "
                "its command to finish it, or remove that folder to start again"
            )
    if before.get("sources") != now["sources"]:
        shutil.rmtree(segments, ignore_errors=True)
        (workplace / TOKENIZER_FILE).unlink(missing_ok=True)
    segments.mkdir(exist_ok=True)
    save_text(file, json.dumps(now, indent=1))


def refuse_changed(sources: list[Source], workplace: Path) -> None:
    """Refuse a corpus that changed while it was being read: parts of it may be of no version.

    Raises:
        CorpusError: It names the source.
    """
    before = json.loads((workplace / IDENTITY_FILE).read_text())["sources"]
    for source, then, now in zip(sources, before, _files_of(sources), strict=True):
        if then != now:
            raise CorpusError(
                f"{source.name}: changed while it was being read; wait until nothing writes to it, "
                "and give the same command again"
            )


def _files_of(sources: list[Source]) -> Any:
    """Return the identities of the sources as JSON has them."""
    return json.loads(json.dumps([source.identity() for source in sources]))
