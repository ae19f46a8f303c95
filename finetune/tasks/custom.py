"""A task of the user's own from three files.

It is the classification or regression of one text or a pair; of a .conll file the tags of words, of
a .json file of SQuAD's form the answers in texts. The labels are those of the training file, of
tags those of the development file too. Without a development file a tenth of the training rows
is held out, which depends on their texts alone: equal texts stay together, and adding rows never
moves a row between training and development set.
"""

import hashlib
import operator
from collections import Counter
from dataclasses import replace
from itertools import chain, compress
from pathlib import Path

import numpy
from pydantic import Field, field_validator, model_validator

from data_prep.files.quoting import one_spelling, quoted
from finetune.tasks.catalog import SUITES
from finetune.tasks.examples import examples_of, label_words, labels_of
from finetune.tasks.metric_names import METRIC_NAMES, MetricName, metrics_of
from finetune.tasks.tables import FORMATS, read_rows
from finetune.tasks.task import OF_TOKENS, Example, Kind, Task, TaskData, TaskError
from finetune.tasks.token_files import KINDS, read_questions, read_sentences
from pretrain.config.settings import Section
from pretrain.reports.words import counted

HELD_OUT_SHARE = 0.1
FEW = 20  # examples of a class: each is 5 points of its recall
SPLITS = ("train", "dev", "test")
Files = dict[str, Path]  # by split
Found = tuple[Task, dict[str, list[Example]], list[str]]  # with remarks for the user


class OwnTask(Section):
    """The files of a task of the user's own, and which columns predict which."""

    name: str = Field(
        "own", pattern=r"^\w[\w.-]*$", description="name of the task in tables and folders"
    )
    train: Path = Field(
        description=f"examples to learn from; {FORMATS}, .conll of words with tags, or .json as "
        "SQuAD's questions"
    )
    dev: Path | None = Field(
        None, description="examples to score on; none: a tenth of the training file"
    )
    test: Path | None = Field(None, description="examples to predict, without labels")
    texts: tuple[str, ...] = Field(
        ("text",), min_length=1, max_length=2, description="columns of the text or of the pair"
    )
    label: str = Field("label", description="column that is predicted")
    regression: bool = Field(False, description="labels are numbers, and predicted as such")
    multi_label: bool = Field(
        False,
        description="any number of labels: a list (JSON, Parquet), or text with , ; or | between",
    )
    metric: MetricName | None = Field(
        None,
        description=f"{', '.join(METRIC_NAMES)}: counts in tables and chooses the learning rate; "
        "default: accuracy, of imbalanced classes macro_f1, of several labels micro_f1, of "
        "numbers pearson",
    )

    @field_validator("name")
    @classmethod
    def _is_not_in_a_suite(cls, name: str) -> str:
        for suite in SUITES.values():
            if one_spelling(name) in map(one_spelling, suite.tasks):
                raise ValueError(f"name={name!r} is a task of {suite.name}; choose another name")
        return name

    @model_validator(mode="after")
    def _check_columns(self) -> "OwnTask":
        columns = (*self.texts, self.label)
        if len(set(columns)) < len(columns):
            raise ValueError(f"texts and label name a column twice: {', '.join(columns)}")
        if self.regression and self.multi_label:
            raise ValueError("regression and multi_label exclude each other; choose one")
        files = [file for file in (self.train, self.dev, self.test) if file is not None]
        if len({KINDS.get(file.suffix.lower()) for file in files}) > 1:
            raise ValueError(f"{', '.join(map(str, files))}: give files of one format")
        without = {"texts", "label", "regression", "multi_label"} & self.model_fields_set
        if self.form in OF_TOKENS and without:
            raise ValueError(
                f"{', '.join(sorted(without))}: {self.train} has {self.form} and no columns to "
                "choose from; leave the option out (a table of JSON is a .jsonl file)"
            )
        return self

    @property
    def form(self) -> Kind | None:
        """Return what the training file has; None: a table, with whatever its columns hold."""
        return KINDS.get(self.train.suffix.lower()) or ("multi-label" if self.multi_label else None)


def read_own(own: OwnTask) -> TaskData:
    """Read a task of the user's own.

    Raises:
        TaskError: a file cannot be read, lacks a column or rows, its labels are unsuitable, or the
            metric does not fit them.
    """
    files: Files = {name: file for name in SPLITS if (file := getattr(own, name)) is not None}
    task, found, notes = (_of_tokens if own.form in OF_TOKENS else _of_table)(own, files)
    train, dev = found["train"], found.get("dev")
    if empty := sum(not all(map(str.strip, example.texts)) for example in train):
        notes.append(f"warning: {counted(empty, 'row')} of {own.train} without text")
    texts = [text for example in train for text in example.texts]
    num_quoted = sum(text[1:].endswith('"') and text[0] == '"' for text in texts)
    if num_quoted and own.train.suffix.lower() == ".tsv":
        notes.append(
            f"{own.train}: {counted(num_quoted, 'text')} in quotes, which TSV keeps; to read it as "
            "CSV with tabs, name it .csv"
        )
    if dev is not None:
        trained = {example.texts for example in train}
        if recurring := sum(example.texts in trained for example in dev):
            notes.append(
                f"warning: the texts of {counted(recurring, 'row')} of {own.dev} are in "
                f"{own.train} too"
            )
    else:
        # Questions about one text stay together.
        first, every = 1 if task.kind == "answers" else 0, len(train)
        words = ("\0".join(example.texts[first:]).encode() for example in train)
        hashes = (hashlib.sha256(word).digest()[:8] for word in words)
        held_out = [int.from_bytes(one, "big") < HELD_OUT_SHARE * 2**64 for one in hashes]
        dev = [*compress(train, held_out)]
        train = [*compress(train, map(operator.not_, held_out))]
        if not dev or not train:
            raise TaskError(
                f"{own.train}: {counted(every, 'row')} are too few, or too alike, to hold some "
                "out; give a development file"
            )
        notes.append(f"no development file: {len(dev):,} of the {every:,} rows are held out")
    if task.kind == "classification":
        counts = Counter(example.label for example in dev)
        rarest = min(range(len(task.labels)), key=counts.__getitem__)
        if counts[rarest] < FEW:
            notes.append(
                f"{counts[rarest]} of the {len(dev):,} development examples are "
                f"{quoted(task.labels[rarest])}, fewer than {FEW}: give a larger --dev"
            )
    test = {"test": found["test"]} if "test" in found else {}
    return TaskData(task, train, {"dev": dev}, test, tuple(notes))


def _of_tokens(own: OwnTask, files: Files) -> Found:
    kind: Kind = own.form or "tags"
    columns = (("words",), "tag") if kind == "tags" else (("question and context",), "answer")
    metrics, notes = metrics_of(kind, own.metric)
    task = Task(*(own.name, (), metrics, *columns), identity=None, file=own.train.name, form=kind)
    if kind == "answers":
        return task, {name: read_questions(files[name], name != "test") for name in files}, notes
    read = {name: read_sentences(files[name], name != "test") for name in files}
    labelled = [tags for name in read if name != "test" for _, tags in read[name]]
    task = replace(task, labels=tuple(sorted({*chain(*labelled)})))
    if len(task.labels) < 2:
        raise TaskError(f"{own.train} has no tag but {task.labels[0]}: there is nothing to learn")
    found = {
        name: [
            Example(words, None if name == "test" else tuple(map(task.labels.index, tags)), str(n))
            for n, (words, tags) in enumerate(sentences)
        ]
        for name, sentences in read.items()
    }
    return task, found, notes


def _of_table(own: OwnTask, files: Files) -> Found:
    columns, where = (*own.texts, own.label), f"{own.train}: column {own.label!r}"
    rows = {
        name: read_rows(file, own.texts if name == "test" else columns)
        for name, file in files.items()
    }
    task = Task(
        *(own.name, (), (), own.texts, own.label), identity=None, file=own.train.name, form=own.form
    )
    words = [word for row in rows["train"] for word in label_words(row, task, own.train)]
    if len(set(words)) < 2:
        only = quoted(words[0]) if words else "none"
        raise TaskError(
            f"{where} holds no label but {only}: there is nothing to learn; choose another column"
        )
    task = replace(task, labels=() if own.regression else labels_of(words, where))
    metrics, notes = metrics_of(task.kind, own.metric, words)
    if "f1" in metrics:
        notes.append(f"F1 is that of label {quoted(task.labels[-1])}")
    task = replace(task, metrics=metrics)
    found = {
        name: examples_of(task, rows[name], file, is_labelled=name != "test")
        for name, file in files.items()
    }
    if own.regression:
        numbers = numpy.array([example.label for example in found["train"]], float)
        if numbers.std() < 1e-4 * abs(numbers).max():
            notes.append(f"warning: {where} varies too little for fp32; subtract its mean")
    return task, found, notes
