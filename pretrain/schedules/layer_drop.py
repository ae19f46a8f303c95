"""Progressive layer drop: which blocks run at a step, and how much the kept ones count.

Zhang & He, "Accelerating Training of Transformer-Based Language Models with Progressive Layer
Dropping", NeurIPS 2020. A keep ratio theta falls from 1 towards theta_bar over the run; within a
step, deeper blocks are kept less often. Everything here is a pure function of (settings, seed,
finished steps, draw, theta): nothing is stored, so a resumed run draws the numbers of an
uninterrupted one, and every rank draws the same. Ranks must agree: ZeRO exchanges gradients block
by block, and ranks that skip different blocks end in a communication error.

A block that is skipped costs nothing, but its weights still move: ZeRO gives it a zero gradient,
and Adam's momentum and the weight decay still act on it (plain PyTorch would not update it).
"""

import math
from collections.abc import Callable

import numpy

from pretrain.config.errors import ConfigError, lookup
from pretrain.config.settings import LayerDropSettings, RunSettings

# Default gamma is this number over the steps of the run, the paper's rule: theta is within 1 % of
# theta_bar after 5 % of the steps.
GAMMA_TIMES_STEPS = 100

# Separates these coins from every other use of the seed.
COIN_STREAM = 0x6C61796572

KeepRatio = Callable[[float, LayerDropSettings], float]


def _none(time: float, settings: LayerDropSettings) -> float:
    del time, settings
    return 1.0


def _constant(time: float, settings: LayerDropSettings) -> float:
    del time
    return settings.theta_bar


def _progressive(time: float, settings: LayerDropSettings) -> float:
    return (1 - settings.theta_bar) * math.exp(-time) + settings.theta_bar


def _reverse(time: float, settings: LayerDropSettings) -> float:
    return 1 - (1 - settings.theta_bar) * math.exp(-time)


# theta as a function of time = gamma x position.
KEEP_RATIOS: dict[str, KeepRatio] = {
    "none": _none,
    "progressive": _progressive,  # the paper: full depth first
    "constant": _constant,
    "reverse": _reverse,  # depth grows instead, as in RaPTr (arXiv:2402.05913)
}


def theta_at(position: float, settings: LayerDropSettings, total_steps: int) -> float:
    """Return the keep ratio of the last block at `position`, which goes from 0 to `total_steps`.

    The position is the number of finished steps, unless the run has a time budget (horizon.py).
    theta(t) = (1 - theta_bar) exp(-gamma t) + theta_bar, for the schedule "progressive".

    Raises:
        ConfigError: `layer_drop.schedule` does not exist.
    """
    schedule = lookup(KEEP_RATIOS, settings.schedule, setting="layer_drop.schedule")
    gamma = GAMMA_TIMES_STEPS / total_steps if settings.gamma is None else settings.gamma
    if settings.compat == "deepspeed":
        # DeepSpeed computed theta before it counted the finished step.
        position = max(0, position - 1)
    return schedule(gamma * position, settings)


def keep_probabilities(theta: float, num_layers: int, settings: LayerDropSettings) -> list[float]:
    """Return the probability that each block runs, first block first.

    Block i of L (from 1) is kept with p_i = 1 - (i / L)(1 - theta). With compat = "deepspeed" it
    is p_{i-1}: bing_bert lowered p after drawing, so that the first block always runs.
    """
    first = 0 if settings.compat == "deepspeed" else 1
    return [1 - (layer + first) / num_layers * (1 - theta) for layer in range(num_layers)]


def branch_scales(
    finished: int,
    draw: int,
    settings: LayerDropSettings,
    *,
    theta: float,
    num_layers: int,
    seed: int,
) -> list[float]:
    """Toss the coins of one draw: 0.0 skips a block, 1/p scales the branches of a kept one.

    The coins are those of the step that begins after `finished` steps, and of its draw number
    `draw`: of the micro-batch of that number, if every one has its own. Scaling by the p that was
    drawn with keeps the expected output of a branch what it is at full depth. With compat =
    "deepspeed" the scale is 1/p of the next block, as bing_bert computed it: at theta 0.5 and 12
    blocks every branch is 4 % to 8 % too large on average.
    """
    probabilities = keep_probabilities(theta, num_layers, settings)
    coins = _coins(seed, finished, draw, num_layers)
    scaled_by = probabilities
    if settings.compat == "deepspeed":
        scaled_by = [*probabilities[1:], theta]
    scales = [1 / p if settings.rescale else 1.0 for p in scaled_by]
    return [
        scale if coin < p else 0.0
        for coin, p, scale in zip(coins, probabilities, scales, strict=True)
    ]


def scales_of_step(
    finished: int, settings: RunSettings, *, theta: float, count: int
) -> list[list[float]]:
    """Toss the coins of the `count` micro-batches that a rank accumulates in one optimizer step.

    With draw_per = "step" each of the draws is of as many micro-batches, and so of the same share
    of the step's sequences on any number of ranks.
    """
    drop = settings.layer_drop
    draws = count if drop.draw_per == "micro_batch" else drop.draws
    return [
        branch_scales(
            finished,
            micro_batch * draws // count,
            drop,
            theta=theta,
            num_layers=settings.model.num_layers,
            seed=settings.seed,
        )
        for micro_batch in range(count)
    ]


def check_layer_drop(settings: LayerDropSettings) -> None:
    """Refuse combinations that bing_bert never had.

    Raises:
        ConfigError: unknown schedule, or compat = "deepspeed" with another one than progressive.
    """
    lookup(KEEP_RATIOS, settings.schedule, setting="layer_drop.schedule")
    if settings.compat == "deepspeed" and settings.schedule != "progressive":
        raise ConfigError(
            f"layer_drop.compat='deepspeed' is defined for layer_drop.schedule='progressive', "
            f"not {settings.schedule!r}; set compat to none"
        )


def _coins(seed: int, finished: int, draw: int, num_layers: int) -> list[float]:
    counter = numpy.array([0, draw, finished, 0], dtype=numpy.uint64)
    key = numpy.array([seed, COIN_STREAM], dtype=numpy.uint64)
    generator = numpy.random.Generator(numpy.random.Philox(key=key, counter=counter))
    return [float(coin) for coin in generator.random(num_layers)]
