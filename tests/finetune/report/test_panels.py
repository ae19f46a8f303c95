"""A panel for each metric, and pre-training measured by what the run recorded."""

import statistics

import pytest

from finetune.report import figures
from finetune.report.score_table import score_table
from finetune.results.sweep_results import read_sweep_results
from finetune.tasks.glue import GLUE
from tests.finetune.report.score_case import write_result

# PLD's Fig. 10; its last two are called "SST-B".
PLD_PANELS = (
    *("MNLI-m", "MNLI-mm", "QNLI", "QQP accuracy", "RTE", "SST-2", "WNLI", "CoLA"),
    *("MRPC accuracy", "MRPC F1", "STS-B Pearson", "STS-B Spearman"),
)


@pytest.fixture
def drawn(monkeypatch):
    """Return the lines of every panel by its title: (x, median x 100) of each model."""
    found = {}

    def note(panels, xlabel, names, place):
        for title, _, lines in panels:
            points = [[(point.x, 100 * point.median) for point in line] for line in lines]
            found[f"{title} {xlabel}"] = points
        return []

    monkeypatch.setattr(figures, "_draw", note)
    return found


def metrics_of(task, seed, step, rate):
    """Return scores in which every metric of every set is another number."""
    known = GLUE.tasks[task]
    start = 0.3 + 0.01 * [*GLUE.tasks].index(task) + 0.02 * seed + step / 1e5 + 10 * rate
    return {
        split: {
            metric: start + 0.1 * place + 0.2 * number
            for number, metric in enumerate(known.metrics)
        }
        for place, split in enumerate(known.development)
    }


def test_there_is_a_panel_for_every_metric_of_plds_figure_10(tmp_path, drawn):
    for task in GLUE.tasks:
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
