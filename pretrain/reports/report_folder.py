"""Folders of reports: a command replaces what it wrote itself, and nothing else.

The rule, for every command that writes a folder of pages, pictures and tables:

* A folder that does not exist, or is empty, is written.
* A report is replaced by one of the same kind that is made from the same runs, or from these and
  more. Files that were added by hand stay.
* A report of another kind, or of other runs, is replaced only on request (`--replace`).
* A folder that holds anything else is never written to.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from data_prep.files.atomic import save_text
from data_prep.files.quoting import plain
from pretrain.config.errors import ConfigError

RECORD_FILE = "written.json"
PARTIAL = ".partial-"  # begins the name of a report that is being written
_PARTIAL_NAME = re.compile(re.escape(PARTIAL) + "[a-z0-9_]{8}")  # as `tempfile` completes it
MOST_NAMES = 3


class Written(BaseModel):
    """The record of what a command wrote into a folder."""

    model_config = ConfigDict(strict=True, extra="forbid")

    kind: str
    sources: list[str]  # folders that it was made from, relative to this one
    files: list[str]  # relative to this folder


@dataclass(frozen=True)
class ReportFolder:
    """A folder that a report is to be written to.

    Attributes:
        folder: of the report.
        kind: what is written, such as "a comparison of runs".
        sources: folders that it is made from.
        option: of the command line that names the folder.
        replaces: whether a report of another kind or of other runs may be replaced.
    """

    folder: Path
    kind: str
    sources: Sequence[Path]
    option: str
    replaces: bool = False

    def refuse_if_taken(self) -> None:
        """Check that the folder may be written to.

        Raises:
            ConfigError: it holds something else.
        """
        self._replaceable()

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield an empty folder; its files replace those of the report when the block has ended.

        If the block fails, the folder of the report stays as it was.

        Raises:
            ConfigError: the folder holds something else, or cannot be written.
        """
        before = self._replaceable()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_remains()
            with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=self.folder) as partial:
                yield Path(partial)
                self._move(Path(partial), before)
        except OSError as error:
            raise ConfigError(
                f"cannot write {self.kind} to {self.folder}: {error.strerror}; choose another "
                f"{self.option}"
            ) from None

    def _remove_remains(self) -> None:
        """Remove what killed commands were writing."""
        for entry in self.folder.iterdir():
            if _PARTIAL_NAME.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)

    def _replaceable(self) -> list[str]:
        """Return the files of the report that is to be replaced."""
        found = _entries(self.folder)
        if not found:
            return []
        record = read_record(self.folder)
        if record is None:
            raise ConfigError(
                f"{self.folder} holds other files ({_some(found)}), which {self.option} does not "
                f"overwrite; choose another {self.option}"
            )
        others = set(record.sources) - set(self._sources())
        if (record.kind != self.kind or others) and not self.replaces:
            places = [os.path.relpath((self.folder / other).resolve()) for other in others]
            unnamed = f" with runs that are not named here ({_some(sorted(places))})"
            what = plain(record.kind) + (unnamed if record.kind == self.kind else "")
            raise ConfigError(
                f"{self.folder} holds {what}; choose another {self.option}, or replace it with "
                "--replace"
            )
        return record.files

    def _sources(self) -> list[str]:
        folder = self.folder.resolve()
        return sorted({os.path.relpath(source.resolve(), folder) for source in self.sources})

    def _move(self, partial: Path, before: Sequence[str]) -> None:
        new = sorted(
            str(file.relative_to(partial)) for file in partial.rglob("*") if file.is_file()
        )
        foreign = [name for name in new if (self.folder / name).exists() and name not in before]
        if foreign:
            raise ConfigError(
                f"{self.folder / foreign[0]} was not written by {self.option}; rename it, or "
                f"choose another {self.option}"
            )
        for name in set(before) - set(new):
            (self.folder / name).unlink(missing_ok=True)
        record = Written(kind=self.kind, sources=self._sources(), files=new)
        save_text(self.folder / RECORD_FILE, record.model_dump_json(indent=1) + "\n")
        for name in new:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).replace(self.folder / name)


def read_record(folder: Path) -> Written | None:
    """Return the record of a report; None where there is none that can be trusted."""
    try:
        record = Written.model_validate_json((folder / RECORD_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
    inside = folder.resolve()
    places = [(folder / name).resolve() for name in record.files]
    return record if all(inside in place.parents for place in places) else None


def _some(names: Sequence[str]) -> str:
    return ", ".join([*map(plain, names[:MOST_NAMES]), *["..."] * (len(names) > MOST_NAMES)])


def _entries(folder: Path) -> list[str]:
    """Return the names in a folder; none if it does not exist, or is a file."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []  # creating it reports a file at its place
    return sorted(name for name in names if not name.startswith(PARTIAL))
