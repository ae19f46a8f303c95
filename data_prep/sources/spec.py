"""Parse and open a source as the user names it: [KIND:]PLACE[:key=value]..."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from data_prep.files.quoting import plain
from data_prep.settings import PYTHON_DOCS, DamagedFiles
from data_prep.sources.places import (
    BEGINNING_OF_ARTICLE,
    KIND_OF_SUFFIX,
    beginning_of,
    files_below,
    is_path,
    kind_of,
    refuse_name,
)
from data_prep.sources.python_docs import PythonDocs
from data_prep.sources.source import CannotReadOn, CorpusError, DamagedFile, FileSource, Source
from data_prep.sources.streams import COMPRESSIONS
from data_prep.sources.tables import CsvFiles, HubDataset, JsonLines, ParquetFiles
from data_prep.sources.text import TextFiles
from data_prep.sources.wikiextractor import WikiExtractorFiles

FILE_SOURCES: dict[str, type[FileSource]] = {
    "text": TextFiles,
    "jsonl": JsonLines,
    "csv": CsvFiles,
    "parquet": ParquetFiles,
    "wikiextractor": WikiExtractorFiles,
}
KINDS: dict[str, type[Source]] = {**FILE_SOURCES, "hub": HubDataset, PYTHON_DOCS: PythonDocs}
_KEY = re.compile(r"^(.+):([a-z_]+)=([^:]*)$", re.DOTALL)


def open_sources(texts: Iterable[str], damaged_files: DamagedFiles) -> list[Source]:
    """Open sources, and refuse what is no text before anything is read; see `open_source`.

    Raises:
        CorpusError: As of `open_source`; or files cannot be read, all of which it names.
    """
    sources = [open_source(text, damaged_files=damaged_files) for text in texts]
    refused: dict[str, list[str]] = {}
    for source in (one for one in sources if isinstance(one, FileSource)):
        for file in source.files:
            try:
                next(source.records(file), None)
            except DamagedFile as error:
                refused.setdefault(error.reason, []).append(str(file))
    if refused and damaged_files == "stop":
        listed = "; ".join(f"{', '.join(files)} ({reason})" for reason, files in refused.items())
        raise CannotReadOn(
            f"these files cannot be read: {listed}; repair them, convert them (iconv) or "
            "leave them out: --data.damaged_files skip"
        )
    return sources


def open_source(text: str, *, damaged_files: DamagedFiles = "stop") -> Source:
    """Open a source; of its files only the first bytes are read.

    Args:
        text: [KIND:]PLACE[:key=value]..., for example "wiki.jsonl.gz:column=body:weight=2". KIND
            is text, jsonl, csv, parquet, wikiextractor or hub; if it is left out, it is detected
            from the name. "python-docs" needs no PLACE.
        damaged_files: What happens at a file that cannot be read to its end.

    Raises:
        CorpusError: The place does not exist, is empty, holds several kinds, or files that are not
            text; or a kind, key or value is unknown.
    """
    kind, place, keys = _parsed(text)
    own: dict[str, Any] = {"name": text}
    if kind == "hub":
        own["dataset"] = place
    elif kind != PYTHON_DOCS:
        found, files, left_out = _files_at(place, kind)
        is_extracted = beginning_of(files[0]).startswith(BEGINNING_OF_ARTICLE)  # of any name
        kind = "wikiextractor" if kind is None and found == "text" and is_extracted else found
        own |= {"files": files, "damaged_files": damaged_files, "left_out": left_out}
    known = [field.name for field in fields(KINDS[kind]) if field.name not in own]
    for key in keys:
        if key not in known:
            raise CorpusError(f"{text}: {kind} has no key {plain(key)}; it has {', '.join(known)}")
    try:
        return TypeAdapter(KINDS[kind]).validate_python({"weight": "1", **keys, **own})
    except ValidationError as error:
        first = error.errors()[0]
        raise CorpusError(
            f"{text}: {kind} cannot have {first['loc'][-1]}={plain(str(first['input']))}: "
            f"{first['msg']}"
        ) from error


def _parsed(text: str) -> tuple[str | None, str, dict[str, str]]:
    """Return kind, place and keys of a source; what exists with the whole name is a path."""
    place = text
    keys: dict[str, str] = {}
    while (
        not is_path(place) and not is_path(place.partition(":")[2]) and (found := _KEY.match(place))
    ):
        place, keys = found[1], {found[2]: found[3]} | keys
    if place == PYTHON_DOCS and not is_path(place):
        return PYTHON_DOCS, place, keys
    if is_path(place) or ":" not in place:
        return None, place, keys
    kind, _, place = place.partition(":")
    if kind not in KINDS:
        raise CorpusError(
            f"{text}: no such file, and {kind!r} is no kind of source; the kinds are "
            f"{', '.join(KINDS)}"
        )
    return kind, place, keys


def _files_at(place: str, kind: str | None) -> tuple[str, tuple[Path, ...], str]:
    """Return the kind and the files of a place, and counts of what else a folder holds."""
    path = Path(place)
    if is_path(place) and path.is_file():
        if kind is None and (kind := kind_of(path)) is None:
            refuse_name(path)
        return kind or "text", (path,), ""
    if not is_path(place) or not path.is_dir():
        what = "not a regular file" if is_path(place) else "no such file or folder"
        raise CorpusError(
            f"{place}: {what}; give a file or folder of text, JSON Lines, CSV or Parquet, "
            f'hub:NAME or the built-in corpus "{PYTHON_DOCS}", or shards: --data.shards FOLDER'
        )
    if (path / "manifest.json").is_file() and (path / "tokenizer.json").is_file():
        raise CorpusError(f"{path}: a shard folder; train on it with --data.shards {path}")
    if not (found := files_below(path)):
        raise CorpusError(f"{path}: the folder holds no files; give one with some")
    by_kind: dict[str, list[Path]] = {}
    for file in found:
        if known := kind_of(file):
            by_kind.setdefault(known, []).append(file)
    if kind is not None:
        by_kind = {kind: by_kind.get(kind) or found}
    if len(by_kind) > 1:
        kinds = ", ".join(f"{len(files)} of {kind}" for kind, files in sorted(by_kind.items()))
        raise CorpusError(
            f"{place}: the folder holds several kinds of files ({kinds}); say which to read, "
            f"or all: {' '.join(f'{kind}:{place}' for kind in sorted(by_kind))}"
        )
    for only, files in by_kind.items():
        return only, tuple(files), _counts(set(found).difference(files))
    for file in found:
        refuse_name(file)
    raise CorpusError(
        f"{path}: the folder holds no file of a known kind ({', '.join(KIND_OF_SUFFIX)}, each also "
        f"with {', '.join(COMPRESSIONS)}) but {_counts(found)}; say what its files "
        "are, for example text:FOLDER"
    )


def _counts(files: Iterable[Path]) -> str:
    """Return counts of files by suffix."""
    counts = Counter(file.suffix or "without suffix" for file in sorted(files))
    return ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common())
