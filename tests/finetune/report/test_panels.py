"""A panel for each metric, and pre-training measured by what the run recorded."""

import csv
import json
import statistics

import pytest

from finetune.report import figures
from finetune.report.page import print_table
from finetune.report.score_table import score_table
from finetune.results.sweep_results import read_sweep_results
from pretrain.config.errors import ConfigError
from tests.finetune.report.score_case import write_result
from tests.pretrain.commands.test_compare import write_run

# PLD's Fig. 10; its last two are called "SST-B".
PLD_PANELS = (
    *("MNLI-m", "MNLI-mm", "QNLI", "QQP accuracy", "RTE", "SST-2", "WNLI", "CoLA"),
    *("MRPC accuracy", "MRPC F1", "STS-B Pearson", "STS-B Spearman"),
)
METRICS = {
    "CoLA": ("matthews",),
    "MRPC": ("accuracy", "f1"),
    "STS-B": ("pearson", "spearman"),
    "QQP": ("accuracy", "f1"),
}
TASKS = ("MNLI", "QNLI", "QQP", "RTE", "SST-2", "WNLI", "CoLA", "MRPC", "STS-B")


@pytest.fixture
def drawn(monkeypatch):
    """Return the lines of every panel by its title: (x, median x 100) of each model."""
    found, draw = {}, figures.draw_lines

    def note(axes, lines):
        title = f"{axes.get_title('left')} {axes.get_xlabel()}".replace("\n", " ")
        found[title] = [[(point.x, 100 * point.median) for point in line] for line in lines]
        draw(axes, lines)

    monkeypatch.setattr(figures, "draw_lines", note)
    return found


def metrics_of(task, seed, step, rate):
    """Return scores in which every metric of every set is another number."""
    splits = ("dev_matched", "dev_mismatched") if task == "MNLI" else ("dev",)
    start = 0.3 + 0.01 * TASKS.index(task) + 0.02 * seed + step / 1e5 + 10 * rate
    return {
        split: {
            metric: start + 0.1 * place + 0.2 * number
            for number, metric in enumerate(METRICS.get(task, ("accuracy",)))
        }
        for place, split in enumerate(splits)
    }


def test_there_is_a_panel_for_every_metric_of_plds_figure_10(tmp_path, drawn, monkeypatch):
    files = set()
    monkeypatch.setattr(figures, "save_picture", lambda figure, title, file: files.add(file.name))
    for task in TASKS:
        for step in (1000, 2000):
            for seed in range(3):
                for rate in (1e-3, 2e-3):
                    scores = metrics_of(task, seed, step, rate)
                    write_result(tmp_path, task, scores, step=step, seed=seed, rate=rate)
    figures.draw_figures(score_table(read_sweep_results([tmp_path]), step="all"), tmp_path / "out")
    steps = {title.removesuffix(" steps of pre-training") for title in drawn if "steps" in title}
    assert steps == {*PLD_PANELS, "QQP F1", "average"}
    for title, task, metric in (
        ("MRPC accuracy", "MRPC", "accuracy"),
        ("MRPC F1", "MRPC", "f1"),
        ("STS-B Pearson", "STS-B", "pearson"),
        ("STS-B Spearman", "STS-B", "spearman"),
        ("RTE", "RTE", "accuracy"),
    ):

        def median(step, rate, task=task, metric=metric):
            seeds = [metrics_of(task, seed, step, rate)["dev"][metric] for seed in range(3)]
            return pytest.approx(100 * statistics.median(seeds))

        best = 2e-3  # every score grows with the rate
        assert drawn[f"{title} steps of pre-training"] == [
            [(1000.0, median(1000, best)), (2000.0, median(2000, best))]
        ]
        assert drawn[f"{title} learning rate"] == [
            [(rate, median(2000, rate)) for rate in (1e-3, 2e-3)]
        ]
    assert {"over_steps_MRPC-F1", "over_steps_STS-B-Spearman", "over_steps_average"} <= files


@pytest.fixture
def runs(tmp_path):
    """Two runs of equal steps, of which the second costs twice the FLOPs, with results."""
    folders = []
    for number, name in enumerate(("cheap", "dear"), 1):
        run = write_run(tmp_path / name, "--name", name)
        for file in ("metrics.jsonl", "evals.jsonl"):
            (line, *_) = map(json.loads, (run / file).read_text().splitlines())
            rows = [
                {
                    **line,
                    **{"step": step, "tokens": 64 * step, "flops": number * 1e9 * step**2},
                    "training_seconds": 3.0 * number * step,
                }
                for step in ((10, 30) if file.startswith("metrics") else (20, 40))
            ]
            (run / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
        for step in (20, 25):
            source = f"{run}/checkpoints/step_{step:08d}"
            sweep = run / "finetune" / "tupe"
            scores = 0.5 + step / 1000
            write_result(sweep, "RTE", scores, model=name, step=step, source=source)
        folders.append(run)
    return folders


def costs(runs, axis):
    table = score_table(read_sweep_results(runs), "glue", "all", axis)
    return {(row.model, row.step): cost for row, cost in table.costs.items()}


def test_the_cost_of_a_checkpoint_is_that_of_its_step_in_the_lines_of_the_run(runs):
    squares = {20: 400e9, 25: (400e9 + 900e9) / 2}  # between the lines of 20 and 30
    assert costs(runs, "flops") == {
        (name, step): pytest.approx(number * flops)
        for number, name in enumerate(("cheap", "dear"), 1)
        for step, flops in squares.items()
    }
    assert costs(runs, "steps")["dear", 25] == 25


def test_a_moved_run_is_found_and_one_that_lacks_the_step_or_is_not_there_is_refused(runs):
    moved = runs[0].rename(runs[0].with_name("moved"))
    assert costs([moved], "flops")["cheap", 20] == 400e9
    for file in ("metrics.jsonl", "evals.jsonl"):
        (line, *_) = (moved / file).read_text().splitlines()
        (moved / file).write_text(line + "\n")
    with pytest.raises(ConfigError, match="--axis flops: .*cheap, has no line of step 25 or a la"):
        costs([moved], "flops")
    (moved / "run.json").unlink()
    with pytest.raises(ConfigError, match="--axis flops: .*cheap, has no line of step 20"):
        costs([moved], "flops")
    assert costs([moved], "steps")["cheap", 20] == 20


def test_the_axis_is_that_of_the_panels_the_table_and_the_csv(runs, tmp_path, drawn, capsys):
    out = tmp_path / "out"
    print_table(runs, to=out, step="all", axis="flops")
    assert drawn["RTE FLOPs of pre-training"] == [
        [(number * 400e9, pytest.approx(52)), (number * 650e9, pytest.approx(52.5))]
        for number in (1, 2)
    ]
    assert (out / "figures" / "over_flops_RTE.png").is_file()
    assert "400.00 G" in capsys.readouterr().out
    lines = list(csv.DictReader((out / "table.csv").read_text().splitlines()))
    assert [float(line["flops"]) for line in lines] == [400e9, 650e9, 800e9, 1300e9]
    assert "<th>FLOPs</th>" in (out / "index.html").read_text()
