"""How much each block changes its input, and whether the mean of the change is zero.

PLD, body, Fig. 2: L2 distance and cosine of the input and the output of a block, here over all
tokens. PLD Eqs. 6 to 8 say of PreLN that x_i - H, x_i - x_{i-1} and the residual branch f_RT have
the mean zero. Here f_RT of block l is x_l - x_{l-1}, for both places of the norms, and H, which is
not known, is estimated by x_L. A mean over a sample is never zero, so its norm is compared with two
things:

    ratio      norm of the mean over all tokens / mean of the norms: 0 to 1
    interval   95 % bootstrap interval of the ratio, over rows: tokens of a row are not independent
    zero mean  what 95 % of ratios stay below if the mean of each row had a random sign, which is
               what a mean of zero (and symmetric row means) would give
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.files.progress_bar import Bar
from pretrain.analysis.subjects import encoder_inputs, states_of
from pretrain.data.batches import MaskedBatch
from pretrain.model.objectives.objective import Objective

RESAMPLES, CONFIDENCE, SEED = 2000, 0.95, 0

Floats = NDArray[numpy.float64]


class MeanRatio(NamedTuple):
    """The norm of a mean over tokens, over the mean of the norms; see the module."""

    ratio: float
    low: float
    high: float
    zero_mean: float


class Change(NamedTuple):
    """What a block does to its input x, over all tokens.

    Attributes:
        distance: mean of |output - x|.
        relative: mean of |output - x| over mean of |x|.
        cosine: mean cosine of x and output.
        mean: of output - x, which is f_RT.
        to_last: mean of x_l - x_L, of the output of the block and of the last one; None there.
    """

    distance: float
    relative: float
    cosine: float
    mean: MeanRatio
    to_last: MeanRatio | None


Measured = dict[str, dict[int, list[Change]]]  # by run and step


@torch.no_grad()
def measure_layers(
    model: Objective, batches: Sequence[MaskedBatch], bar: Bar | None = None
) -> list[Change]:
    """Return the change of each block, first block first.

    Args:
        model: in evaluation mode.
        batches: of rows; rows that fill the last batch are left out.
        bar: gets one unit per row.
    """
    sums = [_Sums() for _ in model.encoder.blocks]
    for batch in batches:
        ids_BS = encoder_inputs(model, batch)
        with states_of(model.encoder.blocks) as states:
            model.encoder(ids_BS)
        for number, one in enumerate(sums):
            one.add(states[number], states[number + 1], states[-1])
        if bar is not None:
            bar.update(len(batch.ids_BS))
    return [one.change(is_last=one is sums[-1]) for one in sums]


def mean_ratio(means: Floats, norms: Floats) -> MeanRatio:
    """Return the ratio of this module, with its interval, from the means of rows.

    Args:
        means: of the vectors of each row [R, D]; rows have equal numbers of tokens.
        norms: mean norm of the vectors of each row [R].
    """
    rows = len(means)
    ratio = float(numpy.linalg.norm(means.mean(0)) / norms.mean())
    generator = numpy.random.Generator(numpy.random.Philox(SEED))
    counts = generator.multinomial(rows, numpy.full(rows, 1 / rows), size=RESAMPLES)
    resampled = numpy.linalg.norm(counts @ means, axis=1) / (counts @ norms)
    signs = generator.choice([-1.0, 1.0], size=(RESAMPLES, rows))
    flipped = numpy.linalg.norm(signs @ means, axis=1) / norms.sum()
    low, high = numpy.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return MeanRatio(ratio, float(low), float(high), float(numpy.quantile(flipped, CONFIDENCE)))


class _Sums:
    """Numbers of a block per row, from batch to batch."""

    def __init__(self) -> None:
        self._numbers: list[Floats] = []  # [R, 3]: distance, norm of the input, cosine
        self._means: list[Floats] = []  # [R, D]
        self._means_to_last: list[Floats] = []
        self._norms_to_last: list[Floats] = []

    def add(self, x_BSD: Tensor, output_BSD: Tensor, last_BSD: Tensor) -> None:
        """Add the rows of a batch."""
        x, output, last = x_BSD.double(), output_BSD.double(), last_BSD.double()
        change, to_last = output - x, output - last
        cosine = torch.nn.functional.cosine_similarity(x, output, dim=-1)
        numbers = torch.stack([change.norm(dim=-1), x.norm(dim=-1), cosine], dim=-1)
        self._numbers.append(numbers.mean(1).numpy())
        self._means.append(change.mean(1).numpy())
        self._means_to_last.append(to_last.mean(1).numpy())
        self._norms_to_last.append(to_last.norm(dim=-1).mean(1).numpy())

    def change(self, *, is_last: bool) -> Change:
        """Return the change of the block."""
        numbers = numpy.concatenate(self._numbers)
        distance, norm, cosine = numbers.mean(0).tolist()
        to_last = None
        if not is_last:
            norms = numpy.concatenate(self._norms_to_last)
            to_last = mean_ratio(numpy.concatenate(self._means_to_last), norms)
        mean = mean_ratio(numpy.concatenate(self._means), numbers[:, 0])
        return Change(distance, distance / norm, cosine, mean, to_last)
