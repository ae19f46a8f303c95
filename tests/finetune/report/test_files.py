"""What the table writes, read back by other means."""

import csv
import html
import json
import re

import numpy as np
import pytest
from PIL import Image

from data_prep.command_line import CommandParser
from finetune.commands.table import add_arguments, main
from finetune.report.entries import shown
from finetune.report.page import print_table
from tests.finetune.report.score_case import scores_of, table_of, write_result

ODD = "bad|one & 10 %"


@pytest.fixture
def sweeps(tmp_path):
    """Two checkpoints of two models on two tasks, with a diverged seed."""
    generator = np.random.default_rng(0)
    cases = [
        (model, step, task, rate, seed)
        for model in ("good_one", ODD)
        for step in (1000, 2000)
        for task in ("CoLA", "RTE")
        for rate in (1e-3, 2e-3)
        for seed in range(3)
    ]
    for model, step, task, rate, seed in cases:
        diverged = (task, rate, seed) == ("CoLA", 2e-3, 1)
        score = "diverged" if diverged else float(generator.uniform(0.4, 0.9))
        write_result(tmp_path, task, score, model=model, step=step, rate=rate, seed=seed)
    (tmp_path / "majority.json").write_text(json.dumps({"CoLA": scores_of("CoLA", 0.0)}))
    return tmp_path


def test_the_page_holds_the_table_and_all_pictures_and_needs_nothing_else(sweeps):
    out = sweeps / "out"
    parser = CommandParser()
    add_arguments(parser)
    for file in sweeps.glob("RTE/*-0.002-seed*/result.json"):
        file.unlink()  # no panel over its rates
    main(parser.parse_args([str(sweeps), "--to", str(out), "--checkpoint", "all"]))
    text = (out / "index.html").read_text(encoding="utf-8")
    table = shown(table_of(sweeps, step="all"))
    cells = re.findall(r"<t[dh].*?>(.*?)</t[dh]>", text.partition("</table>")[0], re.S)
    words = [html.unescape(re.sub("<.*?>|\n", "", cell)) for cell in cells]
    expected = [
        cell.replace("\n", "").replace(" - ", "\N{EN DASH}")
        for row in table.rows
        for cell in row.values()
    ]
    assert words == [*table.columns, *expected]
    assert "<span>bad|one &amp; 10 %" in text and "://" not in text
    pictures = sorted((out / "figures").glob("*.png"))
    names = {f"over_steps_{name}" for name in ("CoLA", "RTE", "average")}
    assert {file.stem for file in pictures} == {*names, "over_rates_CoLA"}
    assert text.count("<img") == len(pictures)
    for file in pictures:
        assert file.with_suffix(".svg").read_text().startswith("<?xml")
        assert len(np.unique(np.asarray(Image.open(file).convert("L")))) > 10  # not blank


def test_results_of_which_all_diverged_can_be_written(tmp_path):
    for rate in (1e-3, 2e-3):
        for seed in range(2):
            write_result(tmp_path, "RTE", "diverged", rate=rate, seed=seed, step=10)
    print_table([tmp_path], to=tmp_path / "out")
    (line,) = csv.DictReader((tmp_path / "out" / "table.csv").read_text().splitlines())
    assert (line["score"], line["finished"], line["diverged"]) == ("diverged", "0", "2")
