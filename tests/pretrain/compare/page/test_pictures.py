"""What the pictures of a comparison show, as Matplotlib holds it before it is drawn."""

import itertools
import math
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from pretrain.compare.convergence import compare
from pretrain.compare.page.pictures import height_of_line, phases, spread
from pretrain.compare.page.report import draw_pictures
from pretrain.compare.run_files import DECISIONS
from pretrain.reports.html import COLOURS, DASHES, DPI, MARKERS, WIDTH, line_style
from tests.pretrain.commands.test_compare import runs, write_run
from tests.pretrain.compare.test_report import DROP, POST, arm

TELEPHONE = 368  # pixels for a picture on a page of 400


@pytest.fixture
def figures(monkeypatch):
    """Collect the figures by the names of their files; "narrow" has none."""
    found = {}

    def save(figure, file, **options):
        if isinstance(file, Path):
            found[file.stem] = figure
        elif figure not in found.values():
            found["narrow"] = figure

    monkeypatch.setattr(Figure, "savefig", save)
    return found


def marked(figure, size):
    """Return the places that a marker of this size shows: 8 the target, 7 the plateau's end."""
    return [
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in figure.axes[0].lines
        if line.get_markersize() == size
    ]


def bold_lines(figure):
    lines = figure.axes[0].lines
    return [line for line in lines if line.get_linewidth() == 1.6 and len(line.get_xdata())]


def widths(figure):
    """Return begin and end of each bar."""
    bars = [patch for patch in figure.axes[-1].patches if isinstance(patch, Rectangle)]
    return [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]


def written(axes):
    return [text.get_text() for text in axes.texts]


def shown_labels(axis):
    if not axis.get_tick_params().get("labelbottom", True):
        return []  # the axes below have the labels
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label for place, label in ticks if low <= place <= high]


def is_on(line, x, y):
    points = list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    return any(
        x0 <= x <= x1 and y == pytest.approx(y0 + (x - x0) / (x1 - x0) * (y1 - y0))
        for (x0, y0), (x1, y1) in itertools.pairwise(points)
        if math.isfinite(y0)
    )


@pytest.mark.parametrize(
    "losses",
    [
        (7.0, 6.0, 5.0, 3.5),
        (3.0, 2.9, 2.8, 2.7),  # below the target at the first evaluation
        (math.nan, 3.0, 2.9, 2.8),
    ],
)
def test_the_dot_of_the_target_is_on_the_curve(tmp_path, figures, losses):
    base = arm(tmp_path, "base")
    other = arm(tmp_path, "other", *POST, losses=losses)
    draw_pictures(compare(runs(*base, *other)), tmp_path)
    for name in ("step", "training_seconds", "flops"):
        figure = figures[f"held_out_loss_over_{name}"]
        (first, second), lines = marked(figure, 8), bold_lines(figure)
        assert is_on(lines[0], *first) and is_on(lines[1], *second)
        assert first[1] == 4.0


def test_the_height_of_a_line_between_its_points():
    line = ([10, 20, 30, 40], [4.0, 2.0, math.nan, 1.0])
    heights = {x: height_of_line(line, x) for x in (10, 12.5, 20, 25, 30, 40, 50)}
    assert heights == {10: 4.0, 12.5: 3.5, 20: 2.0, 25: None, 30: None, 40: 1.0, 50: None}


def test_lines_differ_by_dash_and_marker_and_not_by_colour_alone(tmp_path, figures):
    words = [(), POST, DROP, (*POST, *DROP), ("--model.dropout", "0.1")]
    arms = [arm(tmp_path, f"arm{number}", *more) for number, more in enumerate(words)]
    draw_pictures(compare(runs(*itertools.chain(*arms))), tmp_path)
    for name in ("step", "flops", "training_seconds"):
        lines = bold_lines(figures[f"held_out_loss_over_{name}"])
        # Matplotlib calls every sequence of dashes of our own --.
        assert {line.get_linestyle() for line in lines} == {"-", "--", ":", "-."}
        assert len({line.get_marker() for line in lines}) == 5
    styles = {str(line_style(number)) for number in range(280)}
    assert len(styles) == len(COLOURS) * len(DASHES) * len(MARKERS) == 280


def test_text_is_readable_on_a_telephone_and_the_legend_covers_nothing(tmp_path, figures):
    arms = [
        arm(tmp_path, f"an_arm_with_a_long_name_{number}", *more)
        for number, more in enumerate([(), POST, DROP])
    ]
    draw_pictures(compare(runs(*itertools.chain(*arms))), tmp_path)
    assert len(figures) == 4
    del figures["held_out_loss_over_step"]  # "narrow" is shown in its place
    for name, figure in figures.items():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        (legend,) = figure.legends
        assert figure.get_size_inches()[0] == WIDTH, name
        texts = [*legend.get_texts()]
        for axes in figure.axes:
            texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
            texts += [label for axis in (axes.xaxis, axes.yaxis) for label in shown_labels(axis)]
        # Points to pixels where the page shrinks the picture to the screen.
        sizes = [text.get_fontsize() / 72 * TELEPHONE / WIDTH for text in texts]
        assert min(sizes) >= 11, name
        for text in filter(Text.get_text, texts):
            box = text.get_window_extent(renderer)
            assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, (name, text)
        below = legend.get_window_extent(renderer)
        assert not any(below.overlaps(axes.get_window_extent(renderer)) for axes in figure.axes)
    assert TELEPHONE <= WIDTH * DPI  # it is never enlarged there


ENTROPY = 6.5


def plateau_comparison(tmp_path):
    """Three arms: one leaves the plateau late, one reaches the target at its end, one never leaves.

    Steps are 10, 20, 30, 40; the plateau ends at 6.2, and the target is 5.5.
    """
    curves = {(): (6.6, 6.4, 5.4, 5.0), POST: (6.6, 5.8, 5.7, 5.5), DROP: (6.6, 6.5, 6.4, 6.3)}
    folders = [
        *itertools.chain.from_iterable(
            arm(tmp_path, f"arm{number}", *words, losses=losses, frequency_entropy=ENTROPY)
            for number, (words, losses) in enumerate(curves.items())
        )
    ]
    return compare(runs(*folders), "5.5")


def test_the_plateau_and_both_crossings_of_each_arm_are_drawn(tmp_path, figures):
    draw_pictures(plateau_comparison(tmp_path), tmp_path)
    for name, scale in (("held_out_loss_over_step", 1), ("held_out_loss_over_flops", 1e8)):
        axes = figures[name].axes[0]
        # 6.2 is 1/5 of the way from 6.4 to 5.4, and half of that from 6.6 to 5.8.
        left = [(22 * scale, 6.2), (15 * scale, 6.2)]
        assert marked(figures[name], 7) == [pytest.approx(place) for place in left]
        reached = [(29 * scale, 5.5), (40 * scale, 5.5)]
        assert marked(figures[name], 8) == [pytest.approx(place) for place in reached]
        (band,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((6.2, ENTROPY))
        assert "unigram entropy 6.500" in written(axes)
        assert "target 5.500" in written(axes)


def test_a_bar_of_each_arm_shows_where_its_steps_went(tmp_path, figures):
    comparison = plateau_comparison(tmp_path)
    draw_pictures(comparison, tmp_path)
    for name in ("held_out_loss_over_step", "narrow"):
        bars = widths(figures[name])
        expected = [(0, 22), (22, 29), (29, 40), (0, 15), (15, 40), (0, 40)]
        assert bars == [pytest.approx(bar) for bar in expected]
        texts = written(figures[name].axes[-1])
        assert sorted(texts) == sorted(
            ["arm0", "22", "29", "arm1", "15", "40", "arm2", "never left the plateau"]
        )
    last = phases(comparison, comparison.arms[2], "tokens")
    assert [(phase.begin, phase.end, phase.is_over) for phase in last] == [(0, 40 * 256, False)]


def test_an_arm_that_diverged_behind_the_plateau_is_not_called_slow(tmp_path, figures):
    folders = [
        *arm(tmp_path, "base", losses=(6.6, 5.8, 5.4), frequency_entropy=ENTROPY),
        *arm(tmp_path, "lost", *POST, losses=(6.6, 5.8, math.nan), frequency_entropy=ENTROPY),
    ]
    draw_pictures(compare(runs(*folders), "5.5"), tmp_path)
    for name in ("held_out_loss_over_step", "narrow"):
        texts = written(figures[name].axes[-1])
        assert "diverged" in texts and "target not reached" not in texts


def test_the_median_curve_counts_a_seed_that_diverged_as_infinite(tmp_path, figures):
    ends = (math.nan, 4.2, 4.0)
    folders = [*arm(tmp_path, "base", ends=ends), *arm(tmp_path, "new", *POST, ends=(3.9,))]
    draw_pictures(compare(runs(*folders), "5.5"), tmp_path)
    first, _ = bold_lines(figures["held_out_loss_over_step"])
    assert first.get_ydata()[-1] == 4.2


def test_no_loss_stands_beside_a_curve_that_ends_where_a_seed_was_stopped(tmp_path, figures):
    new = arm(tmp_path, "new", *POST, ends=(3.9, 3.8))
    stopped = tmp_path / "stopped"
    write_run(stopped, "--name", "new", "--seed", "2", *POST, losses=(7.0, 6.0), finished=False)
    (stopped / DECISIONS).parent.mkdir()
    (stopped / DECISIONS).write_text('{"action": "stop"}\n')
    draw_pictures(compare(runs(*arm(tmp_path, "base"), *new, stopped), "5.5"), tmp_path)
    texts = written(figures["held_out_loss_over_step"].axes[0])
    assert "base 4.000" in texts and not any(text.startswith("new") for text in texts)


@pytest.mark.filterwarnings("error")
def test_a_name_in_letters_that_matplotlib_lacks_is_text_on_the_page(tmp_path):
    folders = [*arm(tmp_path, "base"), *arm(tmp_path, "日本", *POST)]
    main, *_ = draw_pictures(compare(runs(*folders)), tmp_path)
    assert "日本" in main.svg and "日本" in main.narrow


@pytest.mark.filterwarnings("error")
def test_every_curve_is_in_sight_where_all_losses_are_above_the_entropy(tmp_path, figures):
    entropy = 6.5
    known = {"frequency_entropy": entropy}
    folders = [
        *arm(tmp_path, "base", losses=(9.5, 8.5, 7.9, 7.6), **known),
        *arm(tmp_path, "new", *POST, losses=(9.5, 8.2, 7.6, 7.3), **known),
    ]
    comparison = compare(runs(*folders))
    draw_pictures(comparison, tmp_path)
    for figure in figures.values():
        low, high = figure.axes[0].get_ylim()
        assert low < entropy and comparison.target < high
        for line in bold_lines(figure):
            assert all(low <= loss <= high for loss in line.get_ydata())


def test_names_at_the_ends_of_curves_keep_their_distance_and_order():
    values = [1.0, 1.01, 1.02, 3.0, 4.99, 5.0]
    places = spread(values, 0.2, 5.0)
    assert all(b - a >= 0.2 - 1e-9 for a, b in itertools.pairwise(places))
    assert max(places) <= 5.0 and places[3] == 3.0
    assert spread([], 0.2, 5.0) == []
