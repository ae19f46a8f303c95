"""Learned positional correlations: their pattern per head, [CLS], and their rank.

TUPE Fig. 5 (heat maps of v_ij), Fig. 3 (row and column of [CLS]) and Prop. 1 (rank). Defined for
encodings that add a bias to the attention that depends on no input. It is computed in fp64, so
that its rank is that of the weights.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
import torch
from numpy.typing import NDArray

from pretrain.analysis.findings import Cell, Findings, Table
from pretrain.analysis.head_patterns import RULE, HeadPattern, head_pattern, softmax
from pretrain.analysis.panels import file_name, when
from pretrain.analysis.positions_picture import draw_positions
from pretrain.analysis.subjects import Subject
from pretrain.config.errors import ConfigError
from pretrain.model.positions import (
    POSITION_ENCODINGS,
    PositionEncoding,
    ProjectedPositions,
    RelativeBias,
)

Matrices = NDArray[numpy.float64]  # [N, S, S]: heads, queries, keys

PROJECTED, RELATIVE, WHOLE = "P-term", "B", "v"


class Head(NamedTuple):
    """What was found of one head.

    Attributes:
        correlations: v_ij [S, S], added to the scaled scores.
        pattern: of its weights over words.
        row_mean: of v_0j, [CLS] to the words: theta_1 in TUPE, without effect.
        column_mean: of v_i0, the words to [CLS]: theta_2 in TUPE.
        words_mean: of v_ij, words to words.
        to_cls: mean weight of [CLS] in softmax of v_i, over the words i.
        singular_values: descending, by part: v, its P-term (P U^Q)(P U^K)^T / sqrt(2d) and B.
    """

    correlations: NDArray[numpy.float64]
    pattern: HeadPattern
    row_mean: float
    column_mean: float
    words_mean: float
    to_cls: float
    singular_values: dict[str, NDArray[numpy.float64]]

    def ranks(self) -> dict[str, int]:
        """Return the number of singular values above rounding, by part."""
        return {part: rank(values) for part, values in self.singular_values.items()}


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
        heads = measure_positions(subject, step)
        for number, head in enumerate(heads, 1):
            patterns.append((subject.label, step, number, *_row(head)))
            singular += [
                (subject.label, step, number, part, place, float(value))
                for part, values in head.singular_values.items()
                for place, value in enumerate(values, 1)
            ]
        name = file_name(subject.label)
        tables[f"correlations_{name}"] = _correlations_table(heads)
        caption = _caption(subject, step, heads)
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


def measure_positions(subject: Subject, step: int) -> list[Head]:
    """Return what is found of each head.

    Raises:
        ConfigError: the encoding has no bias that depends on positions alone.
    """
    kind = subject.settings.model.positions
    if not POSITION_ENCODINGS[kind].has_attention_bias:
        known = [name for name, one in POSITION_ENCODINGS.items() if one.has_attention_bias]
        raise ConfigError(
            f"{subject.folder} has model.positions={kind!r}, which adds no bias to the attention "
            f"that depends on positions alone; analyse runs with one of {', '.join(known)}"
        )
    encoding = subject.model(step).encoder.positions.double()
    parts = correlation_parts(encoding, subject.settings.data.sequence_length)
    return [
        _head({part: matrices[number] for part, matrices in parts.items()})
        for number in range(len(parts[WHOLE]))
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
        elif isinstance(module, RelativeBias):
            parts[RELATIVE] = module(length).double().numpy()
    return parts


def rank(singular_values: NDArray[numpy.float64]) -> int:
    """Return how many singular values are above rounding, as `numpy.linalg.matrix_rank` does."""
    epsilon = numpy.finfo(numpy.float64).eps
    least = singular_values[0] * len(singular_values) * epsilon
    return int((singular_values > least).sum())


def _head(parts: dict[str, NDArray[numpy.float64]]) -> Head:
    v = parts[WHOLE]
    return Head(
        correlations=v,
        pattern=head_pattern(v),
        row_mean=float(v[0, 1:].mean()),
        column_mean=float(v[1:, 0].mean()),
        words_mean=float(v[1:, 1:].mean()),
        to_cls=float(softmax(v[1:])[:, 0].mean()),
        singular_values={
            part: numpy.linalg.svd(matrix, compute_uv=False).astype(numpy.float64)
            for part, matrix in parts.items()
        },
    )


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


def _caption(subject: Subject, step: int, heads: Sequence[Head]) -> str:
    return (
        f"{subject.label} ({subject.settings.model.positions}) {when([step])}: positional "
        "correlations v_ij of each head, less the mean of their row, which softmax ignores; "
        "position 0 is [CLS]. Last panel: singular values of v and of the terms it is made of, "
        f"over heads the median. {RULE.format(radius=heads[0].pattern.radius)}"
    )
