"""What the pictures of a comparison show, as Matplotlib holds it before it is drawn."""

import itertools
import math

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pretrain.compare.convergence import AXES, compare
from pretrain.compare.pictures import draw_pictures, height_of_line
from pretrain.reports.html import COLOURS, DASHES, DPI, MARKERS, WIDTH, line_style
from tests.pretrain.commands.test_compare import runs
from tests.pretrain.compare.test_headline import DROP, POST, arm

TELEPHONE = 368  # pixels for a picture on a page of 400


@pytest.fixture
def figures(monkeypatch):
    """Collect the figures by the names of their files."""
    found = {}
    monkeypatch.setattr(Figure, "savefig", lambda figure, file: found.update({file.stem: figure}))
    return found


def dots(figure):
    """Return the places that a large marker shows."""
    (axes,) = figure.axes
    return [
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in axes.lines
        if line.get_markersize() == 8
    ]


def bold_lines(figure):
    (axes,) = figure.axes
    return [line for line in axes.lines if line.get_linewidth() == 1.6 and len(line.get_xdata())]


def shown_labels(axis):
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label for place, label in ticks if low <= place <= high]


def is_on(line, x, y):
    points = list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    return any(
        x0 <= x <= x1 and y == pytest.approx(y0 + (x - x0) / (x1 - x0) * (y1 - y0))
        for (x0, y0), (x1, y1) in itertools.pairwise(points)
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
    for axis in AXES:
        figure = figures[f"held_out_loss_over_{axis}"]
        (first, second), lines = dots(figure), bold_lines(figure)
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
    for name in ("held_out_loss_over_step", "training_loss", "learning_rate"):
        lines = bold_lines(figures[name])
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
    assert len(figures) == 7
    for name, figure in figures.items():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        (axes,), (legend,) = figure.axes, figure.legends
        assert figure.get_size_inches()[0] == WIDTH, name
        texts = [
            *(axes.title, axes.xaxis.label, axes.yaxis.label, *legend.get_texts()),
            *(label for axis in (axes.xaxis, axes.yaxis) for label in shown_labels(axis)),
            *axes.texts,
        ]
        # Points to pixels where the page shrinks the picture to the screen.
        sizes = [text.get_fontsize() / 72 * TELEPHONE / WIDTH for text in texts]
        assert min(sizes) >= 11, name
        for text in texts:
            box = text.get_window_extent(renderer)
            assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, (name, text)
        assert not legend.get_window_extent(renderer).overlaps(axes.get_window_extent(renderer))
    assert TELEPHONE <= WIDTH * DPI  # it is never enlarged there
