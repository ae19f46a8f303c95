"""How much each block changes its input, and whether the mean of the change is zero.

PLD, body, Fig. 2: L2 distance and cosine of the input and the output of a block, here over all
tokens. PLD Eqs. 6 to 8 say of PreLN that x_i - H, x_i - x_{i-1} and the residual branch f_RT have
the mean zero. Here f_RT of block l is x_l - x_{l-1}, for both places of the norms, and H, which is
not known, is estimated by x_L. A mean over a sample is never zero, so its norm is compared:

    ratio      norm of the mean over all tokens / mean of the norms: 0 to 1
    zero mean  what 95 % of ratios stay below if the mean of each row had a random sign, which is
               what a mean of zero (and symmetric row means) would give
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pretrain.analysis import panels
from pretrain.analysis.subjects import Subject, encoder_inputs, measured_at_steps, states_of
from pretrain.data.batches import MaskedBatch
from pretrain.model.objectives.objective import Objective
from pretrain.reports.html import MUTED, as_written, line_style

RESAMPLES, CONFIDENCE, SEED = 2000, 0.95, 0
BESIDE = 0.5  # of the width of a block, over which the runs are spread

CAPTION = (
    "On held-out sequences: L2 distance and cosine of the input and the output of each "
    "block, means over all tokens. Below: norm of the mean of the residual branch f_RT over "
    "the mean of its norms at the last checkpoint; the grey marks are what 95 % of samples stay "
    "below if the mean is zero (PLD Eq. 8)."
)

Floats = NDArray[numpy.float64]


class MeanRatio(NamedTuple):
    """The norm of a mean over tokens, over the mean of the norms; see the module."""

    ratio: float
    zero_mean: float


class Change(NamedTuple):
    """What a block does to its input x, over all tokens."""

    distance: float  # mean of |output - x|
    relative: float  # mean of |output - x| over mean of |x|
    cosine: float  # mean cosine of x and output
    mean: MeanRatio  # of output - x, which is f_RT
    # Mean of x_l - x_L, of the output of the block and of the last one; None there.
    to_last: MeanRatio | None


Measured = dict[str, dict[int, list[Change]]]  # by run and step; of each block


def findings(subjects: Sequence[Subject]) -> panels.Findings:
    """Return the changes of each block of each run at each of its steps."""
    measured = measured_at_steps("layers", subjects, measure_layers)
    table = list[panels.Record]()
    for run, steps in measured.items():
        for step, changes in steps.items():
            for block, change in enumerate(changes, 1):
                place = {"run": run, "step": step, "block": block}
                sizes = {"distance": change.distance, "distance_times_input": change.relative}
                row = {**place, **sizes, "cosine": change.cosine}
                for name, mean in (
                    ("branch_mean_ratio", change.mean),
                    ("mean_ratio_to_last", change.to_last),
                ):
                    if mean is not None:
                        row |= {name: mean.ratio, f"{name}_zero_mean": mean.zero_mean}
                table.append(row)
    return panels.Findings({"layers": table}, {"layers": draw_layers(measured)})


@torch.no_grad()
def measure_layers(model: Objective, batches: Sequence[MaskedBatch]) -> list[Change]:
    """Return the change of each block, first block first.

    The model is in evaluation mode; rows that fill the last batch are left out.
    """
    parts: list[list[list[Floats]]] = [[] for _ in model.encoder.blocks]  # by block and batch
    for batch in batches:
        ids_BS = encoder_inputs(model, batch)
        with states_of(model.encoder.blocks) as states:
            model.encoder(ids_BS)
        doubles = [state.double() for state in states]
        for of_block, x_BSD, output_BSD in zip(parts, doubles, doubles[1:], strict=False):
            change_BSD, left_BSD = output_BSD - x_BSD, output_BSD - doubles[-1]
            cosine_BS = torch.nn.functional.cosine_similarity(x_BSD, output_BSD, dim=-1)
            of_tokens = [change_BSD.norm(dim=-1), x_BSD.norm(dim=-1), cosine_BS, change_BSD]
            of_tokens += [left_BSD.norm(dim=-1), left_BSD]
            of_block.append([one.mean(1).numpy() for one in of_tokens])  # means of each row
    found = [[numpy.concatenate(each) for each in zip(*batches, strict=True)] for batches in parts]
    changes = []
    for number, (distances, norms, cosines, means, away, means_away) in enumerate(found, 1):
        distance, norm, cosine = (float(each.mean()) for each in (distances, norms, cosines))
        to_last = mean_ratio(means_away, away) if number < len(found) else None
        mean = mean_ratio(means, distances)
        changes.append(Change(distance, distance / norm, cosine, mean, to_last))
    return changes


def mean_ratio(means: Floats, norms: Floats) -> MeanRatio:
    """Return the ratio of this module from the means of rows.

    Args:
        means: of the vectors of each row [R, D]; rows have equal numbers of tokens.
        norms: mean norm of the vectors of each row [R].
    """
    rows = len(means)
    ratio = float(numpy.linalg.norm(means.mean(0)) / norms.mean())
    generator = numpy.random.Generator(numpy.random.Philox(SEED))
    signs = generator.choice([-1.0, 1.0], size=(RESAMPLES, rows))
    flipped = numpy.linalg.norm(signs @ means, axis=1) / norms.sum()
    return MeanRatio(ratio, float(numpy.quantile(flipped, CONFIDENCE)))


def draw_layers(measured: Measured) -> Figure:
    """Draw distance and cosine over steps, a panel per run each, and the means over blocks."""
    figure = panels.empty_figure(CAPTION, height=2.8 * panels.PANEL_HEIGHT)
    distances, cosines, (means,) = panels.rows_of_panels(figure, (len(measured), len(measured), 1))
    for row, name, label in (
        (distances, "distance", "L2 distance, input to output"),
        (cosines, "cosine", "cosine, input and output"),
    ):
        curves = {
            run: {step: [one._asdict()[name] for one in changes] for step, changes in steps.items()}
            for run, steps in measured.items()
        }
        panels.draw_over_training(row, curves, label)
    for axes in distances:
        panels.log_scale(axes)
    panels.legend_of_blocks(figure, distances)
    _draw_means(means, measured)
    return figure


def _draw_means(axes: Axes, measured: Measured) -> None:
    label = "|mean of f_RT| / mean of |f_RT|"
    axes.set(title="mean of the residual branch", xlabel="block", ylabel=label)
    for number, (run, steps) in enumerate(measured.items()):
        means = [change.mean for change in steps[max(steps)]]
        shift = BESIDE * ((number + 0.5) / len(measured) - 0.5)
        places = [block + shift for block in range(1, len(means) + 1)]
        style = {**line_style(number), "linestyle": "", "markersize": 4}
        axes.plot(places, [mean.ratio for mean in means], label=as_written(run), **style)
        zero = [mean.zero_mean for mean in means]
        axes.plot(places, zero, linestyle="", marker="_", color=MUTED, markersize=9)
    axes.set_ylim(0, None)
    panels.whole_ticks(axes)
    axes.legend(handlelength=3)
