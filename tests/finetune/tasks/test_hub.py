import sys
from types import SimpleNamespace

import pytest

from finetune.tasks import suite_files
from finetune.tasks.glue import GLUE
from finetune.tasks.suite_files import read_task
from finetune.tasks.task import Example, TaskError


def row(index, label, **texts):
    return {**texts, "label": label, "idx": index}


COLA = {
    "train": [row(0, 1, sentence="Birds sing."), row(1, 0, sentence="Birds sings.")],
    "validation": [row(0, 0, sentence="A birds.")],
    "test": [row(0, -1, sentence="The bird.")],
}
PAIR = {"premise": "He came.", "hypothesis": "He went."}
MNLI = {
    "train": [row(7, 2, **PAIR)],
    **{f"validation_{half}": [row(0, 1, **PAIR)] for half in ("matched", "mismatched")},
    **{f"test_{half}": [row(0, -1, **PAIR)] for half in ("matched", "mismatched")},
}


@pytest.fixture
def library(monkeypatch):
    """What stands in the place of `datasets`; the Hub can be reached."""
    found = {"cola": COLA, "mnli": MNLI}
    library = SimpleNamespace(load_dataset=lambda name, configuration: found[configuration])
    monkeypatch.setitem(sys.modules, "datasets", library)
    monkeypatch.setattr(suite_files, "connect_to_hub", lambda: None)
    return library


@pytest.mark.usefixtures("library")
def test_labels_are_the_hubs_numbers_and_none_in_test():
    data = read_task(GLUE, GLUE.tasks["CoLA"], "hub")
    assert data.train == [Example(("Birds sing.",), 1, "0"), Example(("Birds sings.",), 0, "1")]
    assert data.development == {"dev": [Example(("A birds.",), 0, "0")]}
    assert data.test == {"test": [Example(("The bird.",), None, "0")]}
    data = read_task(GLUE, GLUE.tasks["MNLI"], "hub")
    assert data.train == [Example(("He came.", "He went."), 2, "7")]
    assert list(data.development) == ["dev_matched", "dev_mismatched"]
    assert list(data.test) == ["test_matched", "test_mismatched"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"validation": []}, "cola: no examples in .validation., it has train"),
        ({"train": [row(5, 2, sentence="s")]}, "train has labels other than 0 to 1"),
        ({"train": [row(5, 1, text="s")]}, "train has no column 'sentence'"),
    ],
)
def test_what_is_not_glue_is_refused(library, damage, message):
    library.load_dataset = lambda *_: {**COLA, **damage}
    with pytest.raises(TaskError, match=f"nyu-mll/glue, .*{message}"):
        read_task(GLUE, GLUE.tasks["CoLA"], "hub")


def test_an_error_of_the_library_or_the_hub_is_one_line(library, monkeypatch):
    def fails(*_):
        raise OSError("Gateway time-out.")

    library.load_dataset = fails
    with pytest.raises(
        TaskError, match="^nyu-mll/glue, cola: cannot be read: Gateway time-out; try"
    ):
        read_task(GLUE, GLUE.tasks["CoLA"], "hub")
    monkeypatch.setattr(suite_files, "connect_to_hub", fails)
    with pytest.raises(TaskError, match="Gateway .*; try again, give the folder of"):
        read_task(GLUE, GLUE.tasks["CoLA"], "hub")
