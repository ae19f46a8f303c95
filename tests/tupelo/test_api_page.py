"""Every block of docs/API.md runs, in order, and prints what the page shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import tupelo

PAGE = (Path(__file__).parents[2] / "docs" / "API.md").read_text()
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)


@pytest.fixture
def folder(command, tmp_path, monkeypatch):
    """A folder with the shards and the two runs of the page."""
    for name, positions in (("bert_a", "bert-a"), ("tupe_r", "tupe-r")):
        words = ("--name", name, "--model.positions", positions)
        command.train(tmp_path / "runs" / name, *words, "--engine.ds_config", "zero0_fp32")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tiny").symlink_to(command.shards)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    tupelo.POSITION_ENCODINGS.pop("slopes", None)


def test_the_page_runs_from_top_to_bottom_and_prints_what_it_shows(folder):
    names, printed = {}, []
    for code, _ in BLOCK.findall(PAGE):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(code, names)
        printed.append(output.getvalue())
    assert printed == [shown for _, shown in BLOCK.findall(PAGE)]


def test_the_page_names_all_that_is_public_and_nothing_else():
    named = set(re.findall(r"tupelo\.(\w+)", PAGE)) - {"NAME"}
    assert named == set(tupelo.__all__)


def test_no_block_is_left_out():
    assert len(BLOCK.findall(PAGE)) == PAGE.count("```python\n")
    assert PAGE.count("```") == 2 * (PAGE.count("```python\n") + PAGE.count("```text\n"))
