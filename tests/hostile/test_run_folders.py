"""Run folders of others, or of a disk that fails, as `compare` and its report read them."""

import html
import json
import math

import pytest

from pretrain.config.errors import ConfigError
from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.runs import read_run
from pretrain.reports.compare.tables import report_of, run_table, settings_table
from tests.hostile.mutations import mutated_json, mutated_lines
from tests.hostile.property import check_file
from tests.pretrain.commands.test_compare import write, write_run

FILES = ("result.json", "evals.jsonl", "metrics.jsonl", "launches.jsonl")


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "baseline", "--name", "baseline")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "other"
    extra = {"matrix_rate": {"flops_per_second": 1e9}}
    dropping = ("--layer_drop.schedule", "progressive")
    return write_run(folder, "--name", "other", *dropping, speeds=(90.0, 110.0), **extra)


def compared(*folders):
    """Return all that the command computes and prints, but for the pictures."""
    comparison = compare([read_run(folder) for folder in folders])
    report_of(comparison).as_text(80)
    run_table(comparison).as_text(80)
    settings_table(comparison.arms).as_text(80)
    return comparison


@pytest.mark.parametrize("name", FILES)
def test_any_file_of_a_run_is_compared_or_refused(baseline, other, name):
    check_file(
        other / name,
        mutated_lines if name.endswith("jsonl") else mutated_json,
        lambda: compared(baseline, other),
        ConfigError,
        naming=[str(other), str(baseline)],
        then=lambda comparison: math.isfinite(comparison.target) or pytest.fail("no target"),
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.slow("draws the figures of a report")
def test_a_report_shows_a_name_as_it_is_and_executes_nothing(baseline, other, tmp_path):
    name = r"<script>alert(1)</script> $\frac$ {{ 7 * 7 }} 100 % _日本"
    settings = json.loads((other / "run.json").read_text())
    twin = write_run(tmp_path / "twin", "--layer_drop.schedule", "constant")
    (twin / "run.json").write_text(json.dumps(settings | {"name": name, "seed": 3}))
    page = write(compared(baseline, twin), tmp_path / "report")
    assert "<script" not in page
    assert html.escape(name, quote=False) in page
    # Matplotlib's font has no such letters: the browser has.
    assert "日本" in (tmp_path / "report/held_out_loss_over_step.svg").read_text()
