import sys
from types import SimpleNamespace

import pytest

from finetune.tasks import suite_files
from finetune.tasks.glue import GLUE
from finetune.tasks.suite_files import load_from_hub, read_hub, read_task
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


def loader(**configurations):
    return lambda dataset, name: {"nyu-mll/glue": configurations}[dataset][name]


def test_labels_are_the_hubs_numbers_and_none_in_test():
    data = read_hub(GLUE, GLUE.tasks["CoLA"], load=loader(cola=COLA))
    assert data.train == [Example(("Birds sing.",), 1, "0"), Example(("Birds sings.",), 0, "1")]
    assert data.development == {"dev": [Example(("A birds.",), 0, "0")]}
    assert data.test == {"test": [Example(("The bird.",), None, "0")]}


def test_mnli_has_all_its_sets():
    data = read_hub(GLUE, GLUE.tasks["MNLI"], load=loader(mnli=MNLI))
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
def test_what_is_not_glue_is_refused(damage, message):
    with pytest.raises(TaskError, match=f"nyu-mll/glue, .*{message}"):
        read_hub(GLUE, GLUE.tasks["CoLA"], load=loader(cola={**COLA, **damage}))


@pytest.fixture
def fake_library(monkeypatch):
    """Put a library in the place of `datasets`, and let the Hub be reachable."""
    library = SimpleNamespace(
        load_dataset=lambda name, configuration: {"cola": COLA}[configuration]
    )
    monkeypatch.setitem(sys.modules, "datasets", library)
    monkeypatch.setattr(suite_files, "connect_to_hub", lambda: None)
    return library


def test_the_place_hub_goes_through_the_library_and_its_errors_are_one_line(
    fake_library, monkeypatch
):
    cola = GLUE.tasks["CoLA"]
    assert read_task(GLUE, cola, "hub") == read_hub(GLUE, cola, load=loader(cola=COLA))

    def fails(*_):
        raise OSError("Gateway time-out.")

    monkeypatch.setattr(fake_library, "load_dataset", fails)
    with pytest.raises(
        TaskError, match="^nyu-mll/glue, cola: cannot be read: Gateway time-out; try"
    ):
        load_from_hub("nyu-mll/glue", "cola")
    monkeypatch.setattr(suite_files, "connect_to_hub", fails)
    with pytest.raises(TaskError, match="Gateway .*; try again, give the folder of"):
        load_from_hub("nyu-mll/glue", "cola")
