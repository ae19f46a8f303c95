"""The tasks of GLUE, one row each, and what every task is to the rest of the program.

Wang et al., "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
Understanding", ICLR 2019. A task of the user's own is a `Task` too, see own_task.py.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pretrain.config.errors import ConfigError, nearest


class TaskError(ValueError):
    """A file of a task is missing, or holds what cannot be learned from."""


class Example(NamedTuple):
    """One row of a task."""

    texts: tuple[str, ...]  # one or two
    label: int | float | None  # index into `Task.labels`, or the value; None: a test file
    identity: str  # the file's index column; without one, the number of the row, from 0


@dataclass(frozen=True)
class Task:
    """What is predicted from what, how that is scored, and how GLUE's files lay it out."""

    name: str
    kind: Literal["classification", "regression"]
    labels: tuple[str, ...]  # as the files spell them; none in a regression
    # Names in metrics.py. GLUE's score is the mean of all; the first is the one in TUPE's Table 2.
    metrics: tuple[str, ...]
    texts: tuple[str, ...]  # columns
    label: str  # column
    identity: str | None = "index"  # column, in those files that have it; none: the row's number
    development: tuple[str, ...] = ("dev",)  # splits; each is a file SPLIT.tsv
    test: tuple[str, ...] = ("test",)
    headless_columns: tuple[str, ...] = ()  # of train and dev files without a header
    skips_broken_rows: bool = False  # in train and dev files, as everybody does
    hub: str = ""  # configuration of nyu-mll/glue on the Hugging Face Hub
    hub_texts: tuple[str, ...] = ()  # columns there, where they differ

    @property
    def num_outputs(self) -> int:
        """Return how many numbers the model predicts for an example."""
        return len(self.labels) or 1


class TaskData(NamedTuple):
    """All examples of a task."""

    task: Task
    train: list[Example]
    development: dict[str, list[Example]]  # by split
    test: dict[str, list[Example]]  # by split, those that there are
    notes: tuple[str, ...] = ()  # what the user should know, a line each

    @property
    def labelled_digest(self) -> str:
        """Return what changes with any text or label that is trained or scored on."""
        return _digest([self.train, *self.development.values()])

    @property
    def test_digest(self) -> str:
        """Return what changes with any text of the test splits."""
        return _digest(self.test.values())


SENTENCES = ("sentence1", "sentence2")
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")

# The labels stand in the order of the Hub's numbers.
GLUE = {
    task.name: task
    for task in (
        Task(
            "CoLA",
            "classification",
            BINARY,
            ("matthews",),
            texts=("sentence",),
            label="label",
            headless_columns=("source", "label", "star", "sentence"),
            hub="cola",
        ),
        Task(
            "SST-2",
            "classification",
            BINARY,
            ("accuracy",),
            texts=("sentence",),
            label="label",
            hub="sst2",
        ),
        Task(
            "MRPC",
            "classification",
            BINARY,
            ("accuracy", "f1"),
            texts=("#1 String", "#2 String"),
            label="Quality",
            hub="mrpc",
            hub_texts=SENTENCES,
        ),
        Task(
            "STS-B",
            "regression",
            (),
            ("pearson", "spearman"),
            texts=SENTENCES,
            label="score",
            hub="stsb",
        ),
        Task(
            "QQP",
            "classification",
            BINARY,
            ("accuracy", "f1"),
            texts=("question1", "question2"),
            label="is_duplicate",
            identity="id",
            # Questions with line breaks in them: parts of rows, which no label belongs to.
            skips_broken_rows=True,
            hub="qqp",
        ),
        Task(
            "MNLI",
            "classification",
            ("entailment", "neutral", "contradiction"),
            ("accuracy",),
            texts=SENTENCES,
            label="gold_label",
            development=("dev_matched", "dev_mismatched"),
            test=("test_matched", "test_mismatched", "test_ax"),
            hub="mnli",
            hub_texts=("premise", "hypothesis"),
        ),
        Task(
            "QNLI",
            "classification",
            ENTAILMENT,
            ("accuracy",),
            texts=("question", "sentence"),
            label="label",
            hub="qnli",
        ),
        Task(
            "RTE",
            "classification",
            ENTAILMENT,
            ("accuracy",),
            texts=SENTENCES,
            label="label",
            hub="rte",
        ),
        Task(
            "WNLI",
            "classification",
            BINARY,
            ("accuracy",),
            texts=SENTENCES,
            label="label",
            hub="wnli",
        ),
    )
}


def _digest(splits: Iterable[Sequence[Example]]) -> str:
    digest = hashlib.sha256()
    for examples in splits:
        for example in examples:
            digest.update(repr((example.texts, example.label)).encode())
    return digest.hexdigest()[:16]


def named_task(name: str) -> Task:
    """Return the task of GLUE with this name, whatever its case and hyphens.

    Raises:
        ConfigError: there is none; names the nearest one.
    """
    by_plain_name = {plain(task.name): task for task in GLUE.values()}
    found = by_plain_name.get(plain(name))
    if found is not None:
        return found
    known = ", ".join(GLUE)
    if plain(name) in ("mnlim", "mnlimm", "mnlimatched", "mnlimismatched"):
        raise ConfigError(
            f"task {name!r} is a development set of MNLI, not a task; "
            "give MNLI, which is scored on both of its sets"
        )
    if plain(name) in ("ax", "diagnostic"):
        raise ConfigError(
            f"task {name!r} has no training set; give MNLI, whose model predicts it as test_ax"
        )
    similar = nearest(plain(name), list(by_plain_name))
    for short, task in by_plain_name.items():
        similar = similar.replace(f" {short}?", f" {task.name}?")
    raise ConfigError(f"there is no task {name!r}{similar}; one of {known}")


def plain(name: str) -> str:
    """Return a name in the form in which spellings are compared: SST-2, sst_2 and sst2 are one."""
    return name.lower().replace("-", "").replace("_", "")
