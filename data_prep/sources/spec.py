"""Parse and open a source as the user names it: [KIND:]PLACE[:key=value]..."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_args

from data_prep.settings import PYTHON_DOCS, DamagedFiles
from data_prep.sources.compression import COMPRESSIONS
from data_prep.sources.file_types import refuse_name, remedy_of, type_of_name
from data_prep.sources.hub import HubDataset
from data_prep.sources.places import (
    KIND_OF_SUFFIX,
    files_below,
    is_path,
    kind_of,
    kind_of_text,
    refuse_stored,
)
from data_prep.sources.python_docs import PythonDocs
from data_prep.sources.source import CorpusError, FileSource, Source, weight_of
from data_prep.sources.tables import CsvFiles, JsonLines, ParquetFiles
from data_prep.sources.text import DocumentEnd, TextFiles
from data_prep.sources.wikiextractor import WikiExtractorFiles

FILE_SOURCES: dict[str, Any] = {
    "text": TextFiles,
    "jsonl": JsonLines,
    "csv": CsvFiles,
    "parquet": ParquetFiles,
    "wikiextractor": WikiExtractorFiles,
}
COLUMN_KINDS = ("jsonl", "csv", "parquet", "hub")
# The kinds that have a key.
KEYS = {
    "weight": (*FILE_SOURCES, "hub", PYTHON_DOCS),
    "column": COLUMN_KINDS,
    "documents": ("text",),
    "config": ("hub",),
    "split": ("hub",),
    "revision": ("hub",),
}
KINDS = KEYS["weight"]

_KEY = re.compile(r"^(.+):([a-z_]+)=([^:]*)$", re.DOTALL)


class SourceSpec(NamedTuple):
    """A source as the user wrote it."""

    name: str
    kind: str | None
    place: str
    keys: dict[str, str]


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
    spec = _spec_of(text)
    if spec.place == PYTHON_DOCS and spec.kind is None:
        spec = spec._replace(kind=PYTHON_DOCS)
    if spec.kind == PYTHON_DOCS:
        return PythonDocs(text, _checked(spec))
    if spec.kind == "hub":
        return HubDataset(text, _checked(spec), spec.place, **_others(spec))
    kind, files, left_out = _files_at(spec)
    if kind != "parquet" and damaged_files == "stop":
        refuse_stored(files)
    if spec.kind is None and kind == "text":
        kind = kind_of_text(files)
    weight = _checked(spec._replace(kind=kind))
    source: FileSource = FILE_SOURCES[kind](
        text, weight, files, damaged_files, left_out, **_others(spec)
    )
    return source


def describe(names: Iterable[str]) -> str:
    """Return the descriptions of these sources, as they are now.

    Files that a build may have skipped are no reason to refuse them.

    Raises:
        CorpusError: One of them does not exist or holds no text.
    """
    return "; ".join(open_source(name, damaged_files="skip").description for name in names)


def _spec_of(text: str) -> SourceSpec:
    """Parse a source; if a file with the whole name exists, the name is a path."""
    place = text
    keys: dict[str, str] = {}
    while (
        not is_path(place) and not is_path(place.partition(":")[2]) and (found := _KEY.match(place))
    ):
        place, keys = found[1], {found[2]: found[3]} | keys
    kind: str | None = None
    if not is_path(place) and ":" in place:
        kind, _, place = place.partition(":")
        if kind not in KINDS:
            raise CorpusError(
                f"{text}: no such file, and {kind!r} is no kind of source{_nearest(kind, KINDS)}; "
                f"the kinds are {', '.join(KINDS)}"
            )
    return SourceSpec(text, kind, place, keys)


def _checked(spec: SourceSpec) -> float:
    """Refuse keys that this kind does not have, and return the weight."""
    for key in spec.keys:
        if spec.kind not in KEYS.get(key, ()):
            known = [name for name, kinds in KEYS.items() if spec.kind in kinds]
            raise CorpusError(
                f"{spec.name}: {spec.kind} has no key {key!r}{_nearest(key, known)}; "
                f"it has {', '.join(known)}"
            )
    ends = get_args(DocumentEnd)
    if (documents := spec.keys.get("documents", ends[0])) not in ends:
        raise CorpusError(
            f"{spec.name}: documents={documents} is unknown{_nearest(documents, ends)}; what "
            f"ends a document is one of {', '.join(ends)}"
        )
    return weight_of(spec.name, spec.keys.get("weight", "1"))


def _others(spec: SourceSpec) -> dict[str, Any]:
    """Return the keys that are fields of the source of its kind."""
    return {key: value for key, value in spec.keys.items() if key != "weight"}


def _files_at(spec: SourceSpec) -> tuple[str, tuple[Path, ...], str]:
    """Return the kind and the files of a source, and counts of what else its folder holds."""
    path = Path(spec.place)
    if is_path(spec.place) and path.is_file():
        kind = spec.kind or kind_of(path)
        if kind is None:
            refuse_name(path)
        return kind or "text", (path,), ""
    if not is_path(spec.place) or not path.is_dir():
        what = "not a regular file" if is_path(spec.place) else "no such file or folder"
        raise CorpusError(
            f"{spec.place}: {what}; give a file or folder of text, JSON Lines, CSV or Parquet, "
            f'hub:NAME or the built-in corpus "{PYTHON_DOCS}"'
        )
    if (path / "manifest.json").is_file() and (path / "tokenizer.json").is_file():
        raise CorpusError(f"{path}: a shard folder; train on it with --data.shards {path}")
    found = files_below(path)
    by_kind: dict[str, list[Path]] = {}
    for file in found:
        if kind := kind_of(file):
            by_kind.setdefault(kind, []).append(file)
    if spec.kind is not None:
        files = by_kind.get(spec.kind) or found
        by_kind = {spec.kind: files} if files else {}
    if len(by_kind) > 1:
        kinds = ", ".join(f"{len(files)} of {kind}" for kind, files in sorted(by_kind.items()))
        raise CorpusError(
            f"{spec.place}: the folder holds several kinds of files ({kinds}); say which to read, "
            f"for example {min(by_kind)}:{spec.place}"
        )
    for kind, files in by_kind.items():
        return kind, tuple(files), _described(set(found).difference(files))
    raise _no_known_kind(path, found)


def _described(files: Iterable[Path]) -> str:
    """Return counts of files by suffix."""
    counts = Counter(file.suffix or "without suffix" for file in sorted(files))
    return ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common())


def _no_known_kind(folder: Path, files: list[Path]) -> CorpusError:
    """Return an error that says what a folder holds instead of text, and what can be done."""
    start = f"{folder}: the folder holds no file of a known kind"
    if not files:
        return CorpusError(f"{start}; it is empty")
    for file in files:
        if known := type_of_name(file):
            remedy = remedy_of(known, file)
            return CorpusError(f"{start} but {_described(files)}; {known.what}: {remedy}")
    return CorpusError(
        f"{start} ({', '.join(KIND_OF_SUFFIX)}, each also with {', '.join(COMPRESSIONS)}) but "
        f"{_described(files)}; say what its files are, for example text:FOLDER"
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""
