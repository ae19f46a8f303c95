"""The picture of the terms of attention scores, as stacked bars."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from pretrain.analysis.panels import (
    MOST_TICKS,
    PANEL_HEIGHT,
    SMALL,
    empty_figure,
    rows_of_panels,
    set_up,
)
from pretrain.reports.html import COLOURS, INK, PAPER

if TYPE_CHECKING:
    from pretrain.analysis.terms import HeadTerms, Measured

LEGEND = 0.4  # inches
# Of the terms in their order; hatches distinguish them in black and white too.
FACES = (COLOURS[5], COLOURS[4], COLOURS[3], "#8fd1bd", "#cccccc", "#ffffff")
HATCHES = ("", "///", "\\\\\\", "", "...", "xxx")
FEWEST = 0.06  # share that has room for its number
MOST_NUMBERED = 6  # bars in a panel with numbers in them


def draw_terms(measured: "Measured", terms: Sequence[str], caption: str) -> Figure:
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
        for number in range(len(terms))
        if any(_mean_shares(blocks[0])[number] > 0 for blocks in measured.values())
    ]
    figure.legend(
        handles=[Patch(label=terms[number], **_style(number)) for number in used],
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


def _mean_shares(heads: Sequence["HeadTerms"]) -> list[float]:
    shares = [head.shares() for head in heads]
    return [sum(column) / len(heads) for column in zip(*shares, strict=True)]
