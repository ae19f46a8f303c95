"""The blocks of docs/MODELS.md before "Export" run, in order, and print what the page shows."""

import contextlib
import io
import re
from pathlib import Path

import deepspeed  # noqa: F401 - transformers imports it, and it warns on stdout the first time
import pytest

import tupelo

PAGE = (Path(__file__).parents[2] / "docs" / "MODELS.md").read_text().partition("\n## Export")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.compile(r"^# -> (.*\n)", re.MULTILINE)


@pytest.fixture
def folder(command, tmp_path, monkeypatch):
    """A folder with the shards and the run of the page."""
    words = ("--name", "tupe_r", "--model.positions", "tupe-r", "--engine.ds_config", "zero0_fp32")
    command.train(tmp_path / "runs" / "tupe_r", *words)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tiny").symlink_to(command.shards)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    tupelo.POSITION_ENCODINGS.pop("slopes", None)


def test_the_page_runs_from_top_to_bottom_and_prints_what_it_shows(folder):
    names = {}
    for block in BLOCKS:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(block, names)
        assert output.getvalue() == "".join(SHOWN.findall(block))
    bias = names["model"].encoder.positions.attention_bias(3)  # of 2 heads
    assert bias.tolist() == [
        [[-abs(i - j) * slope for j in range(3)] for i in range(3)] for slope in (0.5, 0.25)
    ]


def test_the_page_names_all_that_is_public_and_nothing_else():
    assert set(re.findall(r"tupelo\.(\w+)", PAGE)) - {"NAME"} == set(tupelo.__all__)
