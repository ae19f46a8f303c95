"""Folders of reports: a command replaces what it wrote itself, and nothing else.

A new report replaces the files of an earlier one in its folder. A folder that holds something else
is never written to.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from data_prep.files.atomic import save_text
from data_prep.files.quoting import plain
from pretrain.config.errors import ConfigError

RECORD_FILE = "written.json"  # its "files": relative to the folder
PARTIAL = ".partial-"  # begins the name of a report that is being written


@dataclass(frozen=True)
class ReportFolder:
    """A folder that a report is to be written to."""

    folder: Path
    kind: str  # what is written, such as "a comparison of runs"
    option: str  # of the command line that names the folder

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield an empty folder; its files replace those of the report when the block has ended.

        If the block fails, the folder of the report stays as it was.

        Raises:
            ConfigError: the folder holds something else, or cannot be written.
        """
        before = self.refuse_if_taken()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=self.folder) as partial:
                yield Path(partial)
                files = [file for file in sorted(Path(partial).rglob("*")) if file.is_file()]
                new = {str(file.relative_to(partial)): file for file in files}
                for name in set(before) - set(new):
                    (self.folder / name).unlink(missing_ok=True)
                record = json.dumps({"files": list(new)}, indent=1)
                save_text(self.folder / RECORD_FILE, f"{record}\n")
                for name, file in new.items():
                    (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                    file.replace(self.folder / name)
        except OSError as error:
            raise ConfigError(
                f"cannot write {self.kind} to {self.folder}: {error.strerror}; choose another "
                f"{self.option}"
            ) from None

    def refuse_if_taken(self) -> list[str]:
        """Return the files of the report that is to be replaced.

        Raises:
            ConfigError: the folder holds something else.
        """
        if not self.folder.is_dir():
            return []
        names = (entry.name for entry in self.folder.iterdir())
        if not (found := sorted(name for name in names if not name.startswith(PARTIAL))):
            return []
        try:
            record = json.loads((self.folder / RECORD_FILE).read_bytes())["files"]
            inside = self.folder.resolve()
            return [name for name in record if inside in (inside / name).resolve().parents]
        except (OSError, ValueError, LookupError, TypeError):
            raise ConfigError(
                f"{self.folder} holds other files ({plain(found[0])}); choose another {self.option}"
            ) from None
