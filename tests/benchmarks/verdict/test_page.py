"""The verdict's figures and page against the records that they are made of."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.benchmarks.verdict.conftest import ROOT, run_of, study_of


def test_the_figures_draw_means_and_intervals_over_seeds(drawn):
    import figures

    losses = {
        "base": ([6.6, 6.0, 5.0], [6.8, 6.2, 5.2]),
        "better": ([6.6, 5.5, 4.6], [6.4, 5.5, 4.6]),
    }
    study = study_of(
        *(run_of(arm, seed, one) for arm, both in losses.items() for seed, one in enumerate(both))
    )
    figures.curves(study, Path())
    whole, last = drawn()
    # 100 steps of 1,000 tokens; the lowest arm first.
    assert whole.lines[1].get_xydata() == pytest.approx(
        np.array([[0.1, 6.7], [0.2, 6.1], [0.3, 5.1]])
    )
    assert last.lines[1].get_xydata() == pytest.approx(np.array([[0.3, 5.1]]))
    # A mean ends where an anomaly stopped one of its runs.
    figures.curves(study_of(*study.runs, run_of("base", 2, [6.4, math.inf])), Path())
    (line,) = (one for one in drawn()[0].lines if one.get_ydata()[0] == pytest.approx(6.6))
    assert line.get_ydata() == pytest.approx([6.6, math.inf])

    low, high = stats.ttest_rel([4.6, 4.6], [5.0, 5.2]).confidence_interval(0.95)
    figures.cost(study, "base", "better", file=Path())
    line, *_, dot, interval, _ = drawn()[0].lines
    assert line.get_ydata() == pytest.approx([0, -0.5]) and dot.get_ydata() == pytest.approx([-0.5])
    assert interval.get_ydata() == pytest.approx([low, high])


def test_a_page_is_filled_from_the_records_and_says_what_is_wrong_with_a_mark(tmp_path):
    from studies import write_study

    study = study_of(
        *(run_of("base", seed, [6.9, 5.0 + seed / 100]) for seed in (1, 2, 3)),
        *(
            replace(
                run_of("better", seed, [6.6, 4.5 + seed / 90]),
                flops=0.9e12,
                scores={"CoLA": 8.0 + seed, "CoLA, slow": 9.0},
            )
            for seed in (1, 2, 3)
        ),
        run_of("better", 7, [6.6, 4.4], is_trial=True, **{"learning_rate.peak": 2e-3}),
        run_of("better", 7, [6.6, 4.6], is_trial=True, **{"learning_rate.peak": 4e-3}),
    )
    write_study(study, tmp_path / "results" / "toy.json")
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "VERDICT.md"
    page.write_text(
        "# By hand\n<!-- table ends toy base -->\nold\n<!-- end -->\nmore\n"
        "<!-- table answers toy: Is it better? | better | base; And base? | base | better -->\n"
        "<!-- end -->\n<!-- table tuning toy -->\n<!-- end -->\n"
        "<!-- table scores toy base: CoLA, slow | CoLA -->\n<!-- end -->\n"
        "<!-- figure curves toy -->\n<!-- end -->\n"
        "<!-- figure cost toy base -->\n<!-- end -->\n"
    )
    finished = build(tmp_path)
    assert finished.returncode == 0, finished.stderr
    text = page.read_text()
    assert text.startswith("# By hand") and "old" not in text and "\nmore\n" in text
    assert "| `better` | 3 | 90.0% | 4.522 (4.511 - 4.533) | <= 0.10 | -0.498" in text
    assert "| Is it better? | `better` - `base` | 3 | -0.498" in text and "| lower |" in text
    assert "peak 0.002: 4.400; peak 0.004: 4.600" in text
    assert "`base` | CoLA, slow | CoLA |" in text and "| `better` | 9.0 | 10.0 |" in text
    for kind in ("curves", "cost"):
        assert (tmp_path / "docs" / "figures" / f"toy-{kind}.png").exists()
    assert build(tmp_path).returncode == 0 and page.read_text() == text

    for mark, message in (
        ("<!-- table ends nothing base -->", "there is no results/nothing.json"),
        ("<!-- table end toy base -->", "end is none of clock, ends,"),
        ("<!-- table tuning toy -->\n<!-- table tuning toy -->", "<!-- end --> is missing after"),
    ):
        page.write_text(f"{mark}\n<!-- end -->\n")
        refused = build(tmp_path)
        assert refused.returncode == 1 and message in refused.stderr
        assert "Traceback" not in refused.stderr


def build(root):
    return subprocess.run(
        [sys.executable, "benchmarks/verdict", "build", "--root", str(root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
