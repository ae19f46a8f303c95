"""Learned positional correlations: their pattern per head, [CLS], and their rank.

TUPE Fig. 5 (heat maps of v_ij), Fig. 3 (row and column of [CLS]) and Prop. 1 (rank). Defined for
encodings that add a bias to the attention that depends on no input. It is computed in fp64, so
that its rank is that of the weights.

TUPE Sec. 4.4 finds five patterns in the heads of TUPE-A, by eye. The rule here names them by
numbers. Let w_ij = softmax over j of v_ij, over words only: row and column of [CLS] are left out.
Averages are over all words i:

    before  mean of the sum of w_ij over j < i      after  the same over j > i
    near    mean of the sum of w_ij over |j - i| <= r, r = n / 16 for n words, at least 1

    previous            before is at least 3/4 of before + after
    next                after is at least 3/4 of before + after
    local               neither, and near is at least twice what equal weights would give
    global, not local   neither, and near is at most half of what equal weights would give
    broad               none of these

The thresholds are ours: the paper gives none.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import softmax

from pretrain.analysis.panels import Findings, Record, empty_figure
from pretrain.analysis.subjects import Subject
from pretrain.config.errors import ConfigError
from pretrain.model.position_encoding import PositionEncoding
from pretrain.model.position_tables import ProjectedDistances, ProjectedPositions, RelativeBias
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.reports.html import line_style

Matrices = NDArray[numpy.float64]  # [N, S, S]: heads, queries, keys; or [S, S]

PROJECTED, RELATIVE, WHOLE = "P-term", "B", "v"
ONE_SIDED, NEAR_TIMES, WORDS_PER_RADIUS = 0.75, 2.0, 16
CAPTION = (
    "Positional correlations v_ij of each head, less the mean of their row, which softmax ignores; "
    "position 0 is [CLS]. Last panel: singular values of v and of the terms it is made of, over "
    "heads the median."
)
MOST_COLUMNS = 4
HEIGHT_OF_ROW = {2: 4.2, 3: 3.0, 4: 2.5}  # inches, by the number of columns
HEIGHT_OF_BAR = 0.6
SHOWN_SHARE = 99.0  # percent of the numbers within the scale of the colours
SMALLEST_SHOWN = 1e-9  # of the largest singular value: what is smaller is rounding


class HeadPattern(NamedTuple):
    """The weights of a head over positions, as shares of 1, and the name that follows."""

    pattern: str
    before: float
    same: float  # on the query's own position
    after: float
    near: float
    near_times_uniform: float  # near, in units of what equal weights would give
    near_radius_positions: int


class Head(NamedTuple):
    """What was found of one head."""

    correlations: Matrices  # v_ij [S, S], added to the scaled scores
    pattern: HeadPattern  # of its weights over words
    column_mean: float  # of v_i0, the words to [CLS]: theta_2 in TUPE
    words_mean: float  # of v_ij, words to words
    # Descending, by part: v, its P-term (P U^Q)(P U^K)^T / sqrt(2d) and B.
    singular_values: dict[str, NDArray[numpy.float64]]


def findings(subjects: Sequence[Subject]) -> Findings:
    """Return a picture per run, and the numbers of all heads.

    Raises:
        ConfigError: an encoding has no such bias.
    """
    rows, singular = list[Record](), list[Record]()
    tables, figures = dict[str, list[Record]](), dict[str, Figure]()
    for subject in subjects:
        heads = _heads(subject)
        for number, head in enumerate(heads, 1):
            place = {"run": subject.label, "step": subject.steps[0], "head": number}
            ranks = {part: rank(values) for part, values in head.singular_values.items()}
            means = {"cls_column_mean": head.column_mean, "words_mean": head.words_mean}
            own = {
                f"rank_{name}": ranks.get(part, "")
                for name, part in (("v", WHOLE), ("p_term", PROJECTED), ("b", RELATIVE))
            }
            rows.append({**place, **head.pattern._asdict(), **means, **own})
            singular += [
                {**place, "part": part, "number": nth, "singular_value": float(value)}
                for part, values in head.singular_values.items()
                for nth, value in enumerate(values, 1)
            ]
        name = re.sub(r"[^\w.-]", "-", subject.label)
        tables[f"correlations_{name}"] = [
            {"head": number, "query": query, **{str(j): v for j, v in enumerate(values.tolist())}}
            for number, head in enumerate(heads, 1)
            for query, values in enumerate(head.correlations)
        ]
        figures[f"positions_{name}"] = draw_positions(heads)
    tables |= {"heads": rows, "singular_values": singular}
    return Findings(tables, figures)


def _heads(subject: Subject) -> list[Head]:
    kind = subject.settings.model.positions
    if not POSITION_ENCODINGS[kind].has_attention_bias:
        known = [name for name, one in POSITION_ENCODINGS.items() if one.has_attention_bias]
        raise ConfigError(
            f"{subject.folder} has model.positions={kind!r}, which adds no bias to the attention "
            f"that depends on positions alone; analyse runs with one of {', '.join(known)}"
        )
    encoding = subject.model(subject.steps[0]).encoder.positions.double()
    parts = correlation_parts(encoding, subject.settings.data.sequence_length)
    return [
        Head(
            correlations=v,
            pattern=head_pattern(v),
            column_mean=float(v[1:, 0].mean()),
            words_mean=float(v[1:, 1:].mean()),
            singular_values={
                part: numpy.linalg.svd(matrices[number], compute_uv=False).astype(numpy.float64)
                for part, matrices in parts.items()
            },
        )
        for number, v in enumerate(parts[WHOLE])
    ]


@torch.no_grad()
def correlation_parts(encoding: PositionEncoding, length: int) -> dict[str, Matrices]:
    """Return v, and the P-term and B that it is made of, before the reset of [CLS]."""
    bias_NSS = encoding.attention_bias(length)
    assert bias_NSS is not None
    parts = {WHOLE: bias_NSS.double().numpy()}
    for module in encoding.children():
        if isinstance(module, ProjectedPositions):
            query_NRH, key_NRH = module(length)
            product = query_NRH[:, :length] @ key_NRH[:, :length].transpose(1, 2)
            parts[PROJECTED] = (product * encoding.score_scale).double().numpy()
        elif isinstance(module, RelativeBias | ProjectedDistances):
            parts[RELATIVE] = module(length).double().numpy()
    return parts


def rank(singular_values: NDArray[numpy.float64]) -> int:
    """Return how many singular values are above rounding, as `numpy.linalg.matrix_rank` does."""
    epsilon = numpy.finfo(numpy.float64).eps
    least = singular_values[0] * len(singular_values) * epsilon
    return int((singular_values > least).sum())


def head_pattern(correlations: Matrices) -> HeadPattern:
    """Name the pattern of a head, v_ij [S, S] with [CLS] first, by the rule of this module."""
    weights = softmax(correlations[1:, 1:], axis=-1)
    n = len(weights)
    radius = max(1, n // WORDS_PER_RADIUS)
    place = numpy.arange(n)
    distance = place[None, :] - place[:, None]
    is_near = abs(distance) <= radius
    before, same, after, near = (
        float((weights * where).sum(1).mean())
        for where in (distance < 0, distance == 0, distance > 0, is_near)
    )
    near_times, one_sided = near / float(is_near.mean()), ONE_SIDED * (before + after)
    if before >= one_sided > 0:
        name = "previous"
    elif after >= one_sided > 0:
        name = "next"
    elif near_times >= NEAR_TIMES:
        name = "local"
    else:
        name = "global, not local" if near_times <= 1 / NEAR_TIMES else "broad"
    return HeadPattern(name, before, same, after, near, near_times, radius)


def draw_positions(heads: Sequence[Head]) -> Figure:
    """Draw a heat map per head in one scale of colours, and the singular values."""
    columns = min(MOST_COLUMNS, len(heads) + 1)
    rows = math.ceil((len(heads) + 1) / columns)
    figure = empty_figure(CAPTION, height=rows * HEIGHT_OF_ROW[columns] + HEIGHT_OF_BAR)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    centred = [head.correlations - head.correlations.mean(1, keepdims=True) for head in heads]
    most = float(numpy.percentile(abs(numpy.stack(centred)), SHOWN_SHARE)) or 1.0
    for number, (axes, matrix, head) in enumerate(zip(panels, centred, heads, strict=False), 1):
        title = f"head {number}\n{head.pattern.pattern}"
        means = f"mean to [CLS] {head.column_mean:.2g}\nto words {head.words_mean:.2g}"
        axes.set(title=title, xlabel=f"key j\n{means}", ylabel="query i")
        axes.grid(False)
        image = axes.imshow(matrix, cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest")
    maps = list(panels[: len(heads)])
    bar = figure.colorbar(
        image, ax=maps, extend="both", orientation="horizontal", shrink=0.5, aspect=40
    )
    bar.set_label("v_ij less the mean of row i, added to the score")
    _draw_singular_values(panels[len(heads)], heads)
    for axes in panels[len(heads) + 1 :]:
        axes.set_axis_off()
    return figure


def _draw_singular_values(axes: Axes, heads: Sequence[Head]) -> None:
    label = "share of the largest"
    axes.set(title="singular values", xlabel="number, descending", ylabel=label)
    for number, part in enumerate(heads[0].singular_values):
        values = [head.singular_values[part] for head in heads]
        median = numpy.median([one / one[0] for one in values], axis=0)
        median = median[median > SMALLEST_SHOWN]
        ranks = sorted({rank(one) for one in values})
        label = f"{part}: rank {' to '.join(map(str, dict.fromkeys((ranks[0], ranks[-1]))))}"
        style = {**line_style(number), "marker": "", "linewidth": 1.4}
        axes.plot(range(1, len(median) + 1), median, label=label, **style)
    axes.set_yscale("log")
    axes.set_xlim(0, len(heads[0].correlations))
    axes.legend()
