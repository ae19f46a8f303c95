"""What a task is to the rest of the program, whether it belongs to a suite or to the user."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from data_prep.files.errors import UserError


class TaskError(UserError):
    """A file of a task is missing, or its content cannot be learned from."""


Kind = Literal["classification", "multi-label", "regression", "tags", "answers"]
OF_TOKENS = ("tags", "answers")
# An index into `Task.labels`, several of them (of tags one for each word), a value, or answers.
Label = int | float | tuple[int, ...] | str | tuple["Answer", ...]


class Answer(NamedTuple):
    """An answer that is a part of a text."""

    start: int  # its first character
    text: str


class Example(NamedTuple):
    """One example of a task."""

    texts: tuple[str, ...]  # one or two; of tags the words; of answers question and text
    label: Label | None  # None: of a test file
    identity: str  # the file's index column; without one, the number of the row, from 0


@dataclass(frozen=True)
class Task:
    """What is predicted from what, how it is scored, and how the original files hold it."""

    name: str
    labels: tuple[str, ...]  # as the files spell them; none: a regression
    metrics: tuple[str, ...]  # names in training/metrics.py; the first is the main one
    texts: tuple[str, ...]  # columns
    label: str = "label"  # column
    highest: float | None = None  # value of a regression on a scale from 0; None: no scale
    identity: str | None = "index"  # column, in those files that have it; None: the row's number
    development: tuple[str, ...] = ("dev",)  # splits; each is a file SPLIT.tsv
    test: tuple[str, ...] = ("test",)
    # In tables: the name of a development split that is not `dev`.
    titles: Mapping[str, str] = field(default_factory=dict, hash=False)
    headless_columns: tuple[str, ...] = ()  # of train and dev files without a header
    skips_broken_rows: bool = False  # in train and dev files
    unlabelled: str = ""  # label of the rows that are left out of train and dev files
    file: str = ""  # of the user's own task: the name of the one that it was learned from
    hub: str = ""  # configuration of the suite's data set on the Hugging Face Hub
    hub_texts: tuple[str, ...] = ()  # columns there, where they differ
    form: Kind | None = None  # None: a classification, or without labels a regression

    @property
    def kind(self) -> Kind:
        """Return what is predicted: a class, any number of them, a value, or of each word a tag."""
        return self.form or ("classification" if self.labels else "regression")

    def title(self, split: str) -> str:
        """Return the name of a development split in tables."""
        return self.titles.get(split, split_title(self.name, split))


def split_title(task: str, split: str) -> str:
    """Return the name of a split of a task of which nothing else is known."""
    return task if split in ("dev", "test") else f"{task} {split}"


class TaskData(NamedTuple):
    """All examples of a task."""

    task: Task
    train: list[Example]
    development: dict[str, list[Example]]  # by split
    test: dict[str, list[Example]]  # by split; those that exist
    notes: tuple[str, ...] = ()  # remarks for the user, one line each

    @property
    def labelled_digest(self) -> str:
        """Return a digest of the training and development splits; its second part is newer.

        The first part is of all texts and labels, these as indices, one split after the other; the
        second of the names of the labels and of where each split ends.
        """
        splits = {"train": self.train, **self.development}
        sizes = [(name, len(examples)) for name, examples in splits.items()]
        first = _rows_digest(example for examples in splits.values() for example in examples)
        return f"{first}-{_digest([repr((self.task.labels, sizes))])}"

    @property
    def test_digests(self) -> dict[str, str]:
        """Return a digest of each test split, by `split_title`: a split may be added later.

        The first part is of texts, the second, newer one of identities.
        """
        return {
            split_title(self.task.name, split): f"{_rows_digest(rows)}-"
            + _digest(repr(example.identity) for example in rows)
            for split, rows in self.test.items()
        }


def _rows_digest(examples: Iterable[Example]) -> str:
    return _digest(repr((example.texts, example.label)) for example in examples)


def _digest(words: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode())
    return digest.hexdigest()[:16]
