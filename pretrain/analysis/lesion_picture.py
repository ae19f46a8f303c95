"""The picture of losses without a block, and at random depth."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from pretrain.analysis.panels import (
    PANEL_HEIGHT,
    empty_figure,
    legend_of_runs,
    rows_of_panels,
    set_up,
    whole_ticks,
)
from pretrain.reports.html import line_style

if TYPE_CHECKING:
    from pretrain.analysis.lesion import Lesions

BESIDE = 0.01  # keep ratio by which the runs are apart


def draw_lesions(measured: dict[str, "Lesions"], caption: str) -> Figure:
    """Draw what each block and what random depth adds to the held-out loss, a line per run."""
    figure = empty_figure(caption, height=1.25 * PANEL_HEIGHT)
    ((alone, at_random),) = rows_of_panels(figure, (2,))
    label = "held-out loss, increase in nats"
    set_up(alone, "without one block", xlabel="block left out", ylabel=label)
    set_up(at_random, "random depth", xlabel="keep ratio theta of the last block", ylabel=label)
    for number, found in enumerate(measured.values()):
        style = {**line_style(number), "markersize": 4, "linewidth": 1.3}
        blocks = range(1, len(found.without) + 1)
        alone.plot(blocks, [loss - found.whole for loss in found.without], **style)
        shift = BESIDE * (number - (len(measured) - 1) / 2)
        places = [depth.keep_ratio + shift for depth in found.random]
        at_random.plot(places, [depth.loss - found.whole for depth in found.random], **style)
        ends = [[one - found.whole for one in (depth.low, depth.high)] for depth in found.random]
        at_random.vlines(places, *zip(*ends, strict=True), color=style["color"], linewidth=1.2)
    whole_ticks(alone)
    for axes in (alone, at_random):
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), None)
    legend_of_runs(at_random, list(measured))
    return figure
