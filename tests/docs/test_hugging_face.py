"""The blocks of docs/HUGGING_FACE.md run; the examples with transformers' Trainer learn."""

import json
import random
import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.pretrain.conftest import command, shards

__all__ = ["command", "shards"]  # fixtures
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "HUGGING_FACE.md").read_text().partition("\n## Export")[2]
BLOCKS = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "import" in block]
pytestmark = pytest.mark.slow("needs the extra clients, which run_tests.sh --all installs")


@pytest.fixture(scope="module")
def folder(command, tmp_path_factory):
    """A folder with an export, my_model."""
    folder = tmp_path_factory.mktemp("exports")
    run = command.train(folder / "run")
    status, _, errors = command.run(["export", str(run), "--to", str(folder / "my_model")])
    assert status == 0, errors
    return folder


@pytest.mark.parametrize(
    ("package", "values"),
    [
        ("peft", {"model": "PeftModelForSequenceClassification"}),
        ("sentence_transformers", {"vectors": "ndarray"}),
        ("onnx", {"model": "TupeloModel"}),
    ],
)
def test_a_block_of_the_page_runs(folder, monkeypatch, package, values):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install -e '.[clients]'")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (block,) = (block for block in BLOCKS if f"{package}" in block)
    found = {}
    exec(block, found)
    assert {name: type(found[name]).__name__ for name in values} == values


def test_every_block_of_the_page_is_tried():
    assert len(BLOCKS) == 3


@pytest.fixture
def train_example(folder, monkeypatch, capsys):
    """Return a function that runs an example on small files, and returns what it printed."""
    pytest.importorskip(
        "accelerate", reason="accelerate is not installed: pip install -e '.[clients]'"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(folder)

    def train(name, suffix, contents, *words):
        for kind, content in contents.items():
            (folder / f"{kind}.{suffix}").write_text(content)
        files = [word for kind in contents for word in (f"--{kind}", f"{kind}.{suffix}")]
        monkeypatch.setattr(sys, "argv", [name, "my_model", *files, "--to", name, *words])
        runpy.run_path(str(ROOT / f"examples/{name}.py"), run_name="__main__")
        assert (folder / name / "modeling_tupelo.py").is_file()
        return capsys.readouterr().out

    return train


def tagged(number, seed):
    """Return sentences in which the word determines its tag, and one person has two words."""
    draw, lines = random.Random(seed), ["-DOCSTART- -X- O O", ""]
    words = {"a": ["aa NN B-PER", "bb NN I-PER"], "b": ["cc NN B-LOC"], "c": ["dd NN O"]}
    for _ in range(number):
        lines += [
            line for word in draw.choices("abc", k=draw.randint(3, 6)) for line in words[word]
        ]
        lines.append("")
    return "\n".join(lines)


def test_the_example_of_tagging_learns_to_tag(train_example):
    contents = {"train": tagged(200, 0), "dev": tagged(20, 1)}
    words = ("--epochs", "6", "--learning-rate", "5e-3", "--batch", "16")
    printed = train_example("token_classification", "conll", contents, *words)
    assert float(re.search(r"entity F1 ([\d.]+)", printed)[1]) > 0.9


def questions(number, seed):
    """Return texts of nine letters, in which the answer comes after the letter of the question."""
    draw, paragraphs = random.Random(seed), []
    for _ in range(number):
        letters, place = draw.choices("abcdefgh", k=9), draw.randrange(8)
        asked = letters[place] = draw.choice("lmno")
        answers = [{"text": letters[place + 1], "answer_start": 2 * (place + 1)}]
        asks = [{"question": f"{asked} ?", "answers": answers}]
        paragraphs.append({"context": " ".join(letters), "qas": asks})
    return json.dumps({"data": [{"paragraphs": paragraphs}]})


def test_the_example_of_answering_learns_to_answer(train_example):
    contents = {"train": questions(400, 0), "dev": questions(20, 1)}
    words = ("--epochs", "30", "--learning-rate", "3e-3", "--batch", "32")
    printed = train_example("question_answering", "json", contents, *words)
    # A guess finds one letter of nine.
    assert float(re.search(r"exact match ([\d.]+)", printed)[1]) > 0.7
