"""What the table writes, read back by other means."""

import csv
import html
import json
import re

import numpy as np
import pytest
from PIL import Image

from finetune.commands.table import add_arguments, main
from finetune.report.entries import entries, headers
from finetune.report.page import print_table
from finetune.report.text import as_csv, as_latex, as_markdown
from finetune.results.sweep_results import read_sweep_results
from pretrain.config.recipe import CommandParser
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


def test_csv_holds_every_median_with_its_digits(sweeps):
    lines = list(csv.DictReader(as_csv(table_of(sweeps, step="all")).splitlines()))
    results = [trial.result for trial in read_sweep_results([sweeps]).trials]
    own = [line for line in lines if line["column"] == "RTE"]
    assert len(own) == 4
    for line in own:
        medians = {}
        for rate in (1e-3, 2e-3):
            scores = [
                100 * result.scores["dev"]["accuracy"]
                for result in results
                if (result.task, result.model) == ("RTE", line["model"])
                and (str(result.step), result.learning_rate) == (line["steps"], rate)
            ]
            assert len(scores) == 3
            medians[np.median(scores)] = rate, min(scores), max(scores)
        best = max(medians)
        found = [float(line[name]) for name in ("score", "learning_rate", "lowest", "highest")]
        assert found == pytest.approx([best, *medians[best]], abs=1e-4)  # six digits are written
        assert (line["seeds"], line["finished"], line["diverged"]) == ("3", "3", "0")


def test_markdown_and_latex_have_all_cells_and_mark_the_best(sweeps):
    table = table_of(sweeps, step="all")
    shown, names = entries(table), headers(table)
    markdown = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in as_markdown(table, []).splitlines()
        if line.startswith("|")
    ]
    latex = [
        [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r" \\"))]
        for line in as_latex(table, []).splitlines()
        if line.endswith(r" \\")
    ]
    assert markdown[0] == latex[0] == names
    for row, in_markdown, in_latex in zip(shown[1:], markdown[3:], latex[2:], strict=True):
        for entry, one, other in list(zip(row, in_markdown, in_latex, strict=True))[1:]:
            inside = "; ".join(filter(None, entry[1:3]))
            inside = f" ({inside})" if inside else ""
            assert one == (f"**{entry.value}**" if entry.best else entry.value) + inside
            value = rf"\textbf{{{entry.value}}}" if entry.best else entry.value
            assert other == value + inside.replace(" - ", "--")
    for place, name in enumerate(names[2:], 2):
        numbers = [float(row[place].value) for row in shown if row[place].value != "-"]
        assert {float(row[place].value) for row in shown if row[place].best} == {max(numbers)}, name


def test_names_and_notes_are_escaped(sweeps, capsys):
    table = table_of(sweeps, step="all")
    assert r"bad\|one & 10 %" in as_markdown(table, [])
    assert r"good\_one &" in as_latex(table, [])
    assert r"bad|one \& 10 \% &" in as_latex(table, [])
    assert "% two lines\n" in as_latex(table, ["two\nlines"])
    print_table([sweeps])
    assert ODD in capsys.readouterr().out


def test_the_page_holds_the_table_and_all_pictures_and_needs_nothing_else(sweeps):
    out = sweeps / "out"
    parser = CommandParser()
    add_arguments(parser)
    main(parser.parse_args([str(sweeps), "--to", str(out), "--step", "all"]))
    text = (out / "index.html").read_text(encoding="utf-8")
    table = table_of(sweeps, step="all")
    cells = re.findall(r"<t[dh].*?>(.*?)</t[dh]>", text.partition("</table>")[0], re.S)
    words = [html.unescape(re.sub("<.*?>|\n", "", cell)) for cell in cells]
    expected = [
        "".join(entry[:3]).replace(" - ", "\N{EN DASH}") for row in entries(table) for entry in row
    ]
    assert words == [*headers(table), *expected]
    assert "<span>bad|one &amp; 10 %" in text
    # The names of SVG and of its links are no addresses that a page loads.
    assert "://" not in re.sub(r"xmlns(:xlink)?=\"http://www\.w3\.org/[0-9a-z/]+\"", "", text)
    pictures = sorted((out / "figures").glob("*.png"))
    kinds = ("over_rates", "over_steps")
    panels = ("CoLA", "RTE")
    names = {f"{kind}_{name}" for kind in kinds for name in panels} | {"over_steps_average"}
    assert {file.stem for file in pictures} == names
    assert text.count("<svg") == len(pictures)
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


@pytest.mark.filterwarnings("error")
def test_pictures_of_models_with_long_names_are_drawn_within_their_width(tmp_path):
    for model in ("a_model_with_a_rather_long_name_of_its_own", "b"):
        for rate in (1e-3, 2e-3):
            for place in ("one_folder", "another_folder"):
                source = f"/runs/{place}/{model}"
                write_result(tmp_path / place, "RTE", 0.5, model=model, rate=rate, source=source)
    print_table([tmp_path], to=tmp_path / "out")
    assert list((tmp_path / "out" / "figures").glob("over_rates_*.png"))
