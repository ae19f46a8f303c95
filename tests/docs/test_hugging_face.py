"""The blocks of docs/HUGGING_FACE.md run."""

import re
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
