"""The blocks on exports of docs/MODELS.md run; the examples with transformers' Trainer learn."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pretrain.conftest import command, shards

__all__ = ["command", "shards"]  # fixtures
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "MODELS.md").read_text().partition("\n## Export")[2]
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


def train_example(folder, name, suffix, contents, *words):
    """Run an example on small files, and return what it printed."""
    pytest.importorskip(
        "accelerate", reason="accelerate is not installed: pip install -e '.[clients]'"
    )
    for kind, content in contents.items():
        (folder / f"{kind}.{suffix}").write_text(content)
    files = [word for kind in contents for word in (f"--{kind}", folder / f"{kind}.{suffix}")]
    run = subprocess.run(
        [sys.executable, ROOT / f"examples/{name}.py", folder / "my_model", *files]
        + ["--to", folder / name, *words],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert (folder / name / "modeling_tupelo.py").is_file()
    return run.stdout


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


def test_the_example_of_tagging_learns_to_tag(folder):
    contents = {"train": tagged(200, 0), "dev": tagged(20, 1)}
    words = ("--epochs", "6", "--learning-rate", "5e-3", "--batch", "16")
    printed = train_example(folder, "token_classification", "conll", contents, *words)
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


def test_the_example_of_answering_learns_to_answer(folder):
    contents = {"train": questions(400, 0), "dev": questions(20, 1)}
    words = ("--epochs", "30", "--learning-rate", "3e-3", "--batch", "32")
    printed = train_example(folder, "question_answering", "json", contents, *words)
    # A guess finds one letter of nine.
    assert float(re.search(r"exact match ([\d.]+)", printed)[1]) > 0.7
