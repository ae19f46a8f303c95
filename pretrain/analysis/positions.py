"""The analysis `positions`: tables and pictures of measures/positions.py."""

import math
from collections.abc import Sequence

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pretrain.analysis.findings import Cell, Findings, Table
from pretrain.analysis.measures.head_patterns import RULE
from pretrain.analysis.measures.positions import (
    PROJECTED,
    RELATIVE,
    WHOLE,
    Head,
    measure_positions,
)
from pretrain.analysis.panels import SMALL, empty_figure, file_name, in_words, set_up
from pretrain.analysis.subjects import Subject
from pretrain.config.errors import ConfigError
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.reports.html import line_style

MOST_COLUMNS = 4
HEIGHT_OF_ROW = {2: 4.2, 3: 3.0, 4: 2.5}  # inches, by the number of columns
HEIGHT_OF_BAR = 0.6
SHOWN_SHARE = 99.0  # percent of the numbers within the scale of the colours
SMALLEST_SHOWN = 1e-9  # of the largest singular value: what is smaller is rounding


def findings(subjects: Sequence[Subject]) -> Findings:
    """Return a picture per run, and the numbers of all heads.

    Raises:
        ConfigError: an encoding has no such bias.
    """
    patterns: list[tuple[Cell, ...]] = []
    singular: list[tuple[Cell, ...]] = []
    tables, figures, captions = {}, {}, []
    for subject in subjects:
        (step,) = subject.steps
        heads = _heads(subject)
        for number, head in enumerate(heads, 1):
            patterns.append((subject.label, step, number, *_row(head)))
            singular += [
                (subject.label, step, number, part, place, float(value))
                for part, values in head.singular_values.items()
                for place, value in enumerate(values, 1)
            ]
        name = file_name(subject.label)
        tables[f"correlations_{name}"] = _correlations_table(heads)
        caption = _caption(subject, heads)
        figures[f"positions_{name}"] = draw_positions(heads, caption)
        captions.append(caption)
    columns = ("run", "step", "head", *_COLUMNS)
    tables["heads"] = Table(columns, patterns)
    tables["singular_values"] = Table(
        ("run", "step", "head", "part", "number", "singular_value"), singular
    )
    shown = [columns.index(name) for name in _SHOWN]
    short = Table(_SHOWN, [tuple(row[place] for place in shown) for row in patterns])
    return Findings(short, tables, figures, captions)


def draw_positions(heads: Sequence[Head], caption: str) -> Figure:
    """Draw a heat map per head in one scale of colours, and the singular values."""
    columns = min(MOST_COLUMNS, len(heads) + 1)
    rows = math.ceil((len(heads) + 1) / columns)
    figure = empty_figure(caption, height=rows * HEIGHT_OF_ROW[columns] + HEIGHT_OF_BAR)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    centred = [head.correlations - head.correlations.mean(1, keepdims=True) for head in heads]
    most = float(numpy.percentile(abs(numpy.stack(centred)), SHOWN_SHARE)) or 1.0
    for number, (axes, matrix, head) in enumerate(zip(panels, centred, heads, strict=False), 1):
        title = f"head {number}\n{head.pattern.name}"
        means = f"mean to [CLS] {head.column_mean:.2g}\nto words {head.words_mean:.2g}"
        set_up(axes, title, xlabel=f"key j\n{means}", ylabel="query i", grid=False)
        image = axes.imshow(matrix, cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest")
    maps = list(panels[: len(heads)])
    bar = figure.colorbar(
        image, ax=maps, extend="both", orientation="horizontal", shrink=0.5, aspect=40
    )
    bar.set_label("v_ij less the mean of row i, added to the score", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    _draw_singular_values(panels[len(heads)], heads)
    for axes in panels[len(heads) + 1 :]:
        axes.set_axis_off()
    return figure


def _draw_singular_values(axes: Axes, heads: Sequence[Head]) -> None:
    set_up(axes, "singular values", xlabel="number, descending", ylabel="share of the largest")
    for number, part in enumerate(heads[0].singular_values):
        shares = [head.singular_values[part] / head.singular_values[part][0] for head in heads]
        median = numpy.median(shares, axis=0)
        median = median[median > SMALLEST_SHOWN]
        style = {**line_style(number), "marker": ""}
        ranks = [head.ranks()[part] for head in heads]
        label = f"{part}: rank {_range(ranks)}"
        axes.plot(range(1, len(median) + 1), median, label=label, linewidth=1.4, **style)
    axes.set_yscale("log")
    axes.set_xlim(0, len(heads[0].correlations))
    axes.legend(fontsize=6.5, frameon=False)


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _heads(subject: Subject) -> list[Head]:
    kind = subject.settings.model.positions
    if not POSITION_ENCODINGS[kind].has_attention_bias:
        known = [name for name, one in POSITION_ENCODINGS.items() if one.has_attention_bias]
        raise ConfigError(
            f"{subject.folder} has model.positions={kind!r}, which adds no bias to the attention "
            f"that depends on positions alone; analyse runs with one of {', '.join(known)}"
        )
    encoding = subject.model(subject.steps[0]).encoder.positions
    return measure_positions(encoding, subject.settings.data.sequence_length)


_COLUMNS = (
    *("pattern", "before", "same", "after", "near", "near_times_uniform", "near_radius_positions"),
    *("cls_row_mean", "cls_column_mean", "words_mean", "weight_on_cls_times_uniform"),
    *("rank_v", "rank_p_term", "rank_b"),
)
_SHOWN = (
    *("run", "head", "pattern", "before", "after", "near_times_uniform"),
    *("cls_column_mean", "words_mean", "rank_v", "rank_p_term", "rank_b"),
)


def _row(head: Head) -> tuple[Cell, ...]:
    ranks: dict[str, Cell] = {**head.ranks()}
    return (
        *head.pattern,
        *(head.row_mean, head.column_mean, head.words_mean),
        head.to_cls * len(head.correlations),
        *(ranks.get(part, "") for part in (WHOLE, PROJECTED, RELATIVE)),
    )


def _correlations_table(heads: Sequence[Head]) -> Table:
    """Return v_ij: a row per head and query i, a column per key j."""
    length = len(heads[0].correlations)
    rows: list[tuple[Cell, ...]] = [
        (number, query, *values.tolist())
        for number, head in enumerate(heads, 1)
        for query, values in enumerate(head.correlations)
    ]
    return Table(("head", "query", *map(str, range(length))), rows)


def _caption(subject: Subject, heads: Sequence[Head]) -> str:
    return (
        f"{in_words([subject], '{0.positions}')}: positional "
        "correlations v_ij of each head, less the mean of their row, which softmax ignores; "
        "position 0 is [CLS]. Last panel: singular values of v and of the terms it is made of, "
        f"over heads the median. {RULE.format(radius=heads[0].pattern.radius)}"
    )
