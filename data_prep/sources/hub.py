"""A data set of the Hugging Face Hub, streamed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.files.extras import require
from data_prep.files.hub import connect_to_hub
from data_prep.sources.source import (
    BEGINNING,
    CorpusError,
    Parsed,
    Position,
    RawDocument,
    Skipped,
    Source,
)
from data_prep.sources.tables import parsed_text


@dataclass(frozen=True)
class HubDataset(Source):
    """One split of a data set, the document in one of its columns."""

    dataset: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    column: str = "text"

    libraries = ("datasets",)

    @property
    def description(self) -> str:
        """Return the name that the user gave."""
        return f"{self.name} (Hugging Face Hub)"

    @property
    def licence(self) -> str:
        """Return where the licence is stated."""
        return f"see the card of {self.dataset}"

    @property
    def num_bytes(self) -> None:
        """Return None: the Hub does not report it reliably."""
        return None

    def identity(self) -> list[list[object]]:
        """Return name and revision; without a revision the data may change on the Hub."""
        return [[self.dataset, self.config, self.split, self.revision, self.column]]

    def raw_documents(self, start: Position = BEGINNING) -> Iterator[RawDocument | Skipped]:
        """Yield the value of the text column of each row."""
        rows = self._open()
        first = start.record
        if first:
            rows = rows.skip(first)
        try:
            for number, row in enumerate(rows, start=first + 1):
                if self.column not in row:
                    raise self._refused(
                        f"no column {self.column!r}, it has {', '.join(row)}; "
                        "say which one is the text: column=NAME"
                    )
                text = row[self.column]
                if not isinstance(text, str | None):
                    raise self._refused(
                        f"column {self.column!r} holds {type(text).__name__}, not text; "
                        "name another one: column=NAME"
                    )
                # A list, because the content of a raw document has a length.
                content = [] if text is None else [text]
                yield RawDocument(content, self.name, number, Position(0, number), 0)
        except CorpusError:
            raise
        except Exception as error:  # reading over a network can raise anything
            raise self._refused(f"reading stopped: {_first_line(error)}; try again") from error

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of the text."""
        return parsed_text(raw.content[0] if raw.content else None, raw)

    def _open(self) -> Any:
        require("datasets", by=self.name)
        import datasets

        if not Path(self.dataset).exists():
            self._check_network()
        try:
            return datasets.load_dataset(
                self.dataset,
                self.config,
                split=self.split,
                revision=self.revision,
                streaming=True,
            )
        except Exception as error:  # unknown name, configuration, split; access refused; ...
            raise self._refused(f"cannot be opened: {_first_line(error)}") from error

    def _check_network(self) -> None:
        try:
            connect_to_hub()
        except OSError as error:
            raise self._refused(
                f"the Hugging Face Hub cannot be reached ({error}); download the data set where "
                "there is a network and give its Parquet or JSON Lines files"
            ) from error

    def _refused(self, reason: str) -> CorpusError:
        return CorpusError(f"{self.name}: {reason}")


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
