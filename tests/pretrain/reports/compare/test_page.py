"""What the pictures of a comparison show, as Matplotlib holds it before it is drawn."""

import itertools
import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.page import draw_pictures
from pretrain.reports.html import COLOURS, DASHES, MARKERS, line_style
from tests.pretrain.commands.test_compare import runs
from tests.pretrain.reports.compare.test_report import DROP, POST, arm, stop

ENTROPY = 6.5
KNOWN = {"frequency_entropy": ENTROPY}


@pytest.fixture
def figures(monkeypatch):
    """Collect the figures by what the loss is drawn over."""
    found = {}

    def save(figure, file, **options):
        if isinstance(file, Path):
            found[file.stem.removeprefix("held_out_loss_over_")] = figure

    monkeypatch.setattr(Figure, "savefig", save)
    return found


def bold_lines(figure):
    lines = figure.axes[0].lines
    return [line for line in lines if line.get_linewidth() == 1.6 and len(line.get_xdata())]


def test_the_plateau_and_the_place_where_each_arm_reaches_the_target_are_drawn(tmp_path, figures):
    """One of three arms leaves the plateau late, one reaches the target at its end, one never."""
    curves = {(): (6.6, 6.4, 5.4, 5.0), POST: (6.6, 5.8, 5.7, 5.5), DROP: (6.6, 6.5, 6.4, 6.3)}
    folders = [
        *itertools.chain.from_iterable(
            arm(tmp_path, f"arm{number}", *words, losses=losses, **KNOWN)
            for number, (words, losses) in enumerate(curves.items())
        )
    ]
    draw_pictures(compare(runs(*folders), "5.5"), tmp_path)
    assert figures.keys() == {"step", "flops", "training_seconds"}
    for name, scale in (("step", 1), ("flops", 1e8)):
        axes = figures[name].axes[0]
        marks = [line for line in axes.lines if line.get_markersize() == 8]
        full = [line for line in marks if line.get_markerfacecolor() == line.get_color()]
        found = [(line.get_xdata()[0], line.get_ydata()[0]) for line in full]
        assert found == [pytest.approx((29 * scale, 5.5)), pytest.approx((40 * scale, 5.5))]
        hollow = [line.get_xdata()[0] for line in marks if line not in full]
        assert hollow == pytest.approx([22 * scale, 15 * scale])
        (band,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((6.2, ENTROPY))
        texts = [text.get_text() for text in axes.texts]
        assert texts == ["unigram entropy 6.500", "target 5.500"]


def test_lines_differ_by_dash_and_marker_and_not_by_colour_alone():
    styles = {str(line_style(number)) for number in range(280)}
    assert len(styles) == len(COLOURS) * len(DASHES) * len(MARKERS) == 280


def test_the_median_curve_counts_a_seed_that_diverged_as_infinite(tmp_path, figures):
    ends = (math.nan, 4.2, 4.0)
    folders = [*arm(tmp_path, "base", ends=ends), *arm(tmp_path, "new", *POST, ends=(3.9,))]
    draw_pictures(compare(runs(*folders), "5.5"), tmp_path)
    first, _ = bold_lines(figures["step"])
    assert first.get_ydata()[-1] == 4.2
    stop(folders[0])
    draw_pictures(compare(runs(*folders), "5.5"), tmp_path)
    first, _ = bold_lines(figures["step"])
    assert list(first.get_ydata()) == [7.0, 6.0, 5.0, 4.2]


@pytest.mark.filterwarnings("error")
def test_every_curve_is_in_sight_where_all_losses_are_above_the_entropy(tmp_path, figures):
    folders = [
        *arm(tmp_path, "base", losses=(9.5, 8.5, 7.9, 7.6), **KNOWN),
        *arm(tmp_path, "new", *POST, losses=(9.5, 8.2, 7.6, 7.3), **KNOWN),
    ]
    comparison = compare(runs(*folders))
    draw_pictures(comparison, tmp_path)
    for figure in figures.values():
        low, high = figure.axes[0].get_ylim()
        assert low < ENTROPY and comparison.target < high
        for line in bold_lines(figure):
            assert all(low <= loss <= high for loss in line.get_ydata())
