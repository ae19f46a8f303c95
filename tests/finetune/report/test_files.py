"""What the table writes, read back by other means."""

import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from finetune.commands.table import add_arguments, main
from finetune.report.entries import entries, headers
from finetune.report.page import print_table
from finetune.report.text import as_csv, as_latex, as_markdown
from finetune.results.sweep_results import read_sweep_results
from pretrain.compare.convergence import compare
from pretrain.compare.page.report import report_folder, write_report
from pretrain.compare.runs import read_run
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import CommandParser
from tests.finetune.report.score_case import scores_of, table_of, write_result
from tests.pretrain.commands.test_compare import write_run

ODD = "bad|one & 10 %"


@pytest.fixture
def sweeps(tmp_path):
    """Two checkpoints of two models on three tasks, with a diverged seed."""
    generator = np.random.default_rng(0)
    cases = [
        (model, step, task, rate, seed)
        for model in ("good_one", ODD)
        for step in (1000, 2000)
        for task in ("CoLA", "MNLI", "mine")
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
    own = [line for line in lines if line["column"] == "mine"]
    assert len(own) == 4
    for line in own:
        medians = {}
        for rate in (1e-3, 2e-3):
            scores = [
                100 * result.scores["dev"]["accuracy"]
                for result in results
                if (result.task, result.model) == ("mine", line["model"])
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
            value = f"**{entry.value}**" if entry.best else entry.value
            assert one == (f"{value} ({inside})" if inside else value)
            assert other == (rf"\textbf{{{entry.value}}}" if entry.best else entry.value)
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


class Cells(HTMLParser):
    """Collects the text of every cell of the first table, and counts the pictures."""

    def __init__(self):
        super().__init__()
        self.rows, self.num_pictures, self.num_tables, self.inside = [], 0, 0, False

    def handle_starttag(self, tag, attrs):
        self.num_tables += tag == "table"
        self.num_pictures += tag == "svg"
        if self.num_tables == 1 and tag == "tr":
            self.rows.append([])
        if self.num_tables == 1 and tag in ("td", "th"):
            self.rows[-1].append([])
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside and data.strip():
            self.rows[-1][-1].append(data.strip())


def test_the_page_holds_the_table_and_all_pictures_and_needs_nothing_else(sweeps):
    out = sweeps / "out"
    parser = CommandParser()
    add_arguments(parser)
    main(parser.parse_args([str(sweeps), "--to", str(out), "--step", "all"]))
    text = (out / "index.html").read_text(encoding="utf-8")
    page = Cells()
    page.feed(text)
    table = table_of(sweeps, step="all")
    assert page.rows[0] == [[name] for name in headers(table)]
    for row, expected in zip(page.rows[1:], entries(table), strict=True):
        values = [[part for part in entry[:3] if part] for entry in expected]
        assert row == [[part.replace(" - ", "\N{EN DASH}") for part in parts] for parts in values]
    assert "<span>bad|one &amp; 10 %" in text
    # The names of SVG and of its links are no addresses that a page loads.
    assert "://" not in re.sub(r"xmlns(:xlink)?=\"http://www\.w3\.org/[0-9a-z/]+\"", "", text)
    pictures = sorted((out / "figures").glob("*.png"))
    kinds = ("over_rates", "over_steps", "seeds")
    panels = ("CoLA", "MNLI-m", "MNLI-mm", "mine-accuracy", "mine-macro-F1")
    names = {f"{kind}_{name}" for kind in kinds for name in panels} | {"over_steps_average"}
    assert {file.stem for file in pictures} == names
    assert page.num_pictures == len(pictures)
    for file in pictures:
        assert file.with_suffix(".svg").read_text().startswith("<?xml")
        assert len(np.unique(np.asarray(Image.open(file).convert("L")))) > 10  # not blank


def test_there_are_no_pictures_of_one_step_one_rate_and_one_seed(tmp_path):
    write_result(tmp_path, "RTE", 0.5, step=10)
    print_table([tmp_path], to=tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.png"))


def test_results_of_which_all_diverged_can_be_written(tmp_path):
    for rate in (1e-3, 2e-3):
        for seed in range(2):
            write_result(tmp_path, "RTE", "diverged", rate=rate, seed=seed, step=10)
    print_table([tmp_path], to=tmp_path / "out")
    (line,) = csv.DictReader((tmp_path / "out" / "table.csv").read_text().splitlines())
    assert (line["score"], line["finished"], line["diverged"]) == ("diverged", "0", "2")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    write_result(tmp_path, "RTE", 0.5)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="choose another --to"):
        print_table([tmp_path], to=tmp_path / "file")


def test_results_of_a_task_outside_every_suite_are_written_without_an_average(tmp_path):
    for step in (10, 20):
        write_result(tmp_path, "mine", 0.5, step=step)
    print_table([tmp_path], to=tmp_path / "out", step="all")
    lines = list(csv.DictReader((tmp_path / "out" / "table.csv").read_text().splitlines()))
    columns = ["mine", "mine accuracy", "mine macro F1"]
    assert [(line["column"], line["score"]) for line in lines] == [(c, "50") for c in columns * 2]


def table_into(folder, *sweeps, **options):
    print_table(list(sweeps), to=folder, **options)
    return (folder / "table.csv").read_text()


def test_the_same_table_is_written_again_and_one_of_other_sweeps_on_request_only(tmp_path):
    one, other, out = (tmp_path / name for name in ("one", "other", "out"))
    write_result(one, "RTE", 0.5, model="first")
    write_result(other, "RTE", 0.6, model="second")
    assert "first" in table_into(out, one)
    both = table_into(out, one, other)
    assert "first" in both and "second" in both
    with pytest.raises(ConfigError, match=r"table of scores with runs that are not named here"):
        table_into(out, other)
    assert (out / "table.csv").read_text() == both
    assert "first" not in table_into(out, other, replaces=True)


def test_a_table_and_a_comparison_do_not_share_a_folder(tmp_path):
    write_result(tmp_path / "sweep", "RTE", 0.5)
    runs = [write_run(tmp_path / seed, "--seed", seed) for seed in ("0", "1")]
    comparison = compare([read_run(run) for run in runs])
    write_report(comparison, report_folder(comparison, tmp_path / "report"))
    before = (tmp_path / "report" / "index.html").read_text()
    with pytest.raises(ConfigError, match=r"report holds a comparison; choose another --to"):
        table_into(tmp_path / "report", tmp_path / "sweep")
    assert (tmp_path / "report" / "index.html").read_text() == before
    table_into(tmp_path / "table", tmp_path / "sweep")
    with pytest.raises(ConfigError, match=r"holds a table of scores; choose another --report"):
        write_report(comparison, report_folder(comparison, tmp_path / "table"))


def test_a_table_is_not_written_into_a_sweep(tmp_path):
    write_result(tmp_path, "RTE", 0.5)
    with pytest.raises(ConfigError, match=r"holds other files \(RTE\)"):
        table_into(tmp_path, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["RTE"]


@pytest.mark.filterwarnings("error")
def test_pictures_of_models_with_long_names_are_drawn_within_their_width(tmp_path):
    for model in ("a_model_with_a_rather_long_name_of_its_own", "b"):
        for seed in range(2):
            for place in ("one_folder", "another_folder"):
                source = f"/runs/{place}/{model}"
                write_result(tmp_path / place, "RTE", 0.5, model=model, seed=seed, source=source)
    print_table([tmp_path], to=tmp_path / "out")
    assert list((tmp_path / "out" / "figures").glob("seeds_*.png"))
