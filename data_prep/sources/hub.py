"""A data set of the Hugging Face Hub, streamed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.files.extras import require
from data_prep.files.hub import connect_to_hub
from data_prep.sources.source import BEGINNING, CorpusError, Document, Position, Skipped, Source
from data_prep.sources.tables import document_of, no_column


@dataclass(frozen=True)
class HubDataset(Source):
    """One split of a data set, the document in one of its columns."""

    dataset: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    column: str = "text"

    libraries = ("datasets",)
    licence = "see the card of the data set"

    @property
    def description(self) -> str:
        """Return the name that the user gave."""
        return f"{self.name} (Hugging Face Hub)"

    @property
    def num_bytes(self) -> None:
        """Return None: the Hub does not report it reliably."""
        return None

    def identity(self) -> list[list[object]]:
        """Return name and revision; without a revision the data may change on the Hub."""
        return [[self.dataset, self.config, self.split, self.revision, self.column]]

    def read(self, start: Position = BEGINNING) -> Iterator[Document | Skipped]:
        """Yield the value of the text column of each row."""
        try:
            rows = self._open().skip(start.record)
            for number, row in enumerate(rows, start=start.record + 1):
                if self.column not in row:
                    raise no_column(self.name, self.column, row)
                document = document_of(row[self.column], self.name, number, 0)
                yield document._replace(end=Position(0, number))
        except CorpusError:
            raise
        except Exception as error:  # reading over a network can raise anything
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise CorpusError(f"{self.name}: cannot be read: {reason}; try again") from error

    def _open(self) -> Any:
        require("datasets", by=self.name)
        import datasets

        if not Path(self.dataset).exists():
            try:
                connect_to_hub()
            except OSError as error:
                raise CorpusError(
                    f"{self.name}: the Hugging Face Hub cannot be reached ({error}); download the "
                    "data set where there is a network and give its Parquet or JSON Lines files"
                ) from error
        return datasets.load_dataset(
            self.dataset, self.config, split=self.split, revision=self.revision, streaming=True
        )
