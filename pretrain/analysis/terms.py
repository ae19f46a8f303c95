"""The analysis `terms`: the table and the picture of measures/terms.py."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from pretrain.analysis.findings import Cell, Findings, Table
from pretrain.analysis.measures.terms import TERMS, HeadTerms, Measured, measure_terms
from pretrain.analysis.panels import (
    MOST_TICKS,
    PANEL_HEIGHT,
    SMALL,
    empty_figure,
    in_words,
    rows_of_panels,
    set_up,
)
from pretrain.analysis.subjects import Subject, measured_at_steps
from pretrain.config.errors import ConfigError
from pretrain.model.positions import POSITION_ENCODINGS, BertAbsolute
from pretrain.reports.html import COLOURS, INK, PAPER

LEGEND = 0.4  # inches
# Of the terms in their order; hatches distinguish them in black and white too.
FACES = (COLOURS[5], COLOURS[4], COLOURS[3], "#8fd1bd", "#cccccc", "#ffffff")
HATCHES = ("", "///", "\\\\\\", "", "...", "xxx")
FEWEST = 0.06  # share that has room for its number
MOST_NUMBERED = 6  # bars in a panel with numbers in them
CAPTION = (
    "{runs}, on held-out sequences: shares of the terms of the attention scores (TUPE Eq. 6; the "
    "query is named first), by their variance over the keys of a query. Constant: with "
    "biases in the query or the key. Left: heads of the first block, exact. Right: mean over "
    "the heads of each block; deeper blocks mix words and positions, and position is there the "
    "mean input at a position, word the rest."
)


def findings(subjects: Sequence[Subject]) -> Findings:
    """Return the terms of each head of each run.

    Raises:
        ConfigError: an encoding does not add positions to the words.
    """
    for subject in subjects:
        _refuse_other_encodings(subject)
    at_steps = measured_at_steps("terms", subjects, measure_terms)
    measured = {run: blocks for run, found in at_steps.items() for blocks in found.values()}
    steps = {subject.label: subject.steps[0] for subject in subjects}
    caption = CAPTION.format(runs=in_words(subjects, "{0.positions}"))
    figures = {"terms": draw_terms(measured, caption)}
    return Findings(_short(measured), {"terms": _table(measured, steps)}, figures, [caption])


def draw_terms(measured: Measured, caption: str) -> Figure:
    """Draw a row per run: the heads of its first block, and the means over heads of all blocks."""
    figure = empty_figure(caption, height=len(measured) * PANEL_HEIGHT + LEGEND)
    rows = rows_of_panels(figure, [2] * len(measured))
    for (run, blocks), (first, all_blocks) in zip(measured.items(), rows, strict=True):
        label = "share of the variances"
        set_up(first, f"{run}: block 1", xlabel="head", ylabel=label)
        set_up(all_blocks, f"{run}: all blocks", xlabel="block", ylabel=label)
        _draw_bars(first, [head.shares() for head in blocks[0]])
        _draw_bars(all_blocks, [_mean_shares(heads) for heads in blocks])
    used = [
        number
        for number in range(len(TERMS))
        if any(_mean_shares(blocks[0])[number] > 0 for blocks in measured.values())
    ]
    figure.legend(
        handles=[Patch(label=TERMS[number], **_style(number)) for number in used],
        loc="outside upper center",
        ncols=len(used),
        fontsize=SMALL,
        frameon=False,
    )
    return figure


def _draw_bars(axes: Axes, bars: Sequence[Sequence[float]]) -> None:
    places = range(1, len(bars) + 1)
    below = [0.0] * len(bars)
    for number, shares in enumerate(zip(*bars, strict=True)):
        axes.bar(places, shares, bottom=below, width=0.7, linewidth=0.6, **_style(number))
        if len(bars) <= MOST_NUMBERED:
            for place, share, bottom in zip(places, shares, below, strict=True):
                if share >= FEWEST:
                    middle = (place, bottom + share / 2)
                    text = axes.text(*middle, f"{share:.0%}", ha="center", va="center", fontsize=7)
                    text.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 1, "alpha": 0.8})
        below = [one + share for one, share in zip(below, shares, strict=True)]
    axes.set_axisbelow(True)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xticks(places if len(bars) <= 2 * MOST_TICKS else places[:: len(bars) // MOST_TICKS])


def _style(number: int) -> dict[str, Any]:
    return {"facecolor": FACES[number], "hatch": HATCHES[number], "edgecolor": INK}


def _mean_shares(heads: Sequence[HeadTerms]) -> list[float]:
    shares = [head.shares() for head in heads]
    return [sum(column) / len(heads) for column in zip(*shares, strict=True)]


def _refuse_other_encodings(subject: Subject) -> None:
    kind = subject.settings.model.positions
    if not issubclass(POSITION_ENCODINGS[kind], BertAbsolute):
        known = [name for name, one in POSITION_ENCODINGS.items() if issubclass(one, BertAbsolute)]
        raise ConfigError(
            f"{subject.folder} has model.positions={kind!r}, which does not add positions to the "
            "words, so that its scores have no such terms (TUPE Eq. 6); analyse runs with one of "
            f"{', '.join(known)}"
        )


def _table(measured: Measured, steps: dict[str, int]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, steps[run], block, head, *row)
        for run, blocks in measured.items()
        for block, heads in enumerate(blocks, 1)
        for head, found in enumerate(heads, 1)
        for row in zip(TERMS, found.variances, found.shares(), found.shares_of_sum(), strict=True)
    ]
    columns = ("term", "variance_over_keys", "share_of_variances", "share_of_score_variance")
    return Table(("run", "step", "block", "head", *columns), rows)


def _short(measured: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, head, *(f"{share:.1%}" for share in found.shares()))
        for run, blocks in measured.items()
        for head, found in enumerate(blocks[0], 1)
    ]
    return Table(("run", "head of block 1", *TERMS), rows)
