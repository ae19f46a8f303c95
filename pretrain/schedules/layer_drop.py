"""Progressive layer drop: which blocks run at a step, and how much the kept ones count.

Zhang & He, "Accelerating Training of Transformer-Based Language Models with Progressive Layer
Dropping", NeurIPS 2020. A keep ratio theta falls from 1 towards theta_bar over the run; within a
step, deeper blocks are kept less often. Other schedules let it rise, as RaPTr's stages (Panigrahi
et al., arXiv:2402.05913), which keep first and last block.

Everything here is a pure function of (settings, seed, finished steps, draw, theta): nothing is
stored, so a resumed run draws the numbers of an uninterrupted one, and every rank draws the same.
Ranks must agree: ZeRO exchanges gradients block by block, and ranks that skip different blocks end
in a communication error.

A block that is skipped costs nothing, but its weights still move: ZeRO gives it a zero gradient,
and Adam's momentum and the weight decay still act on it (plain PyTorch would not update it).
"""

import math
from collections.abc import Callable

import numpy

from pretrain.config.errors import ConfigError, lookup
from pretrain.config.settings import LayerDropSettings, RunSettings

# Default gamma x steps. The paper's rule: theta is within 1 % of theta_bar after 5 % of the steps.
GAMMA_TIMES_STEPS = 100
# In reverse the savings end with the decay: this one lasts the whole run, and ends within 1 %.
REVERSE_GAMMA_TIMES_STEPS = 5

ALWAYS_KEPT = 2  # blocks of the schedule "stages": the first and the last

# Separates drop masks from every other use of the seed.
DROP_MASK_STREAM = 0x6C61796572

KeepRatio = Callable[[float, float, LayerDropSettings], float]


def _left(
    position: float, span: float, settings: LayerDropSettings, gamma_times_steps: float
) -> float:
    """Return how much of an exponential decay is left at a position."""
    gamma = gamma_times_steps / span if settings.gamma == "auto" else settings.gamma
    return math.exp(-gamma * position)


# theta as a function of the position and of the span, where the schedule ends.
KEEP_RATIOS: dict[str, KeepRatio] = {
    "none": lambda *_: 1.0,
    # The paper: full depth first.
    "progressive": lambda position, span, drop: (
        (1 - drop.theta_bar) * _left(position, span, drop, GAMMA_TIMES_STEPS) + drop.theta_bar
    ),
    "constant": lambda position, span, drop: drop.theta_bar,
    # The paper's curve upside down: depth grows.
    "reverse": lambda position, span, drop: (
        1 - (1 - drop.theta_bar) * _left(position, span, drop, REVERSE_GAMMA_TIMES_STEPS)
    ),
    "linear_up": lambda position, span, drop: (
        drop.theta_bar + (1 - drop.theta_bar) * min(1.0, position / span)
    ),
    "linear_down": lambda position, span, drop: (
        1 - (1 - drop.theta_bar) * min(1.0, position / span)
    ),
    # RaPTr (arXiv:2402.05913): 6, 8, 10 and 12 blocks of 12.
    "stages": lambda position, span, drop: drop.stages[
        min(len(drop.stages) - 1, int(len(drop.stages) * position / span))
    ],
}


def theta_at(
    position: float, settings: LayerDropSettings, total_steps: int, *, stride: float = 1.0
) -> float:
    """Return the keep ratio at `position`, which goes from 0 to `total_steps`.

    It is that of the last block, and with the schedule "stages" the mean of all blocks. The
    position is the number of finished steps, unless the run has a time budget (horizon.py): then
    `stride` is by how much a step advances it.
    theta(t) = (1 - theta_bar) exp(-gamma t) + theta_bar, for the schedule "progressive".

    Raises:
        ConfigError: `layer_drop.schedule` does not exist.
    """
    schedule = lookup(KEEP_RATIOS, settings.schedule, setting="layer_drop.schedule")
    if settings.compat == "deepspeed":
        # DeepSpeed computed theta before it counted the finished step.
        position = max(0, position - stride)
    return schedule(position, total_steps, settings)


def at_constant_theta(settings: LayerDropSettings, theta: float) -> LayerDropSettings:
    """Return settings that keep each block at every position as these do where theta is `theta`."""
    if settings.schedule == "stages":
        return settings.model_copy(update={"stages": (theta,)})
    return settings.model_copy(update={"schedule": "constant", "theta_bar": theta})


def keep_probabilities(theta: float, num_layers: int, settings: LayerDropSettings) -> list[float]:
    """Return the probability that each block runs, first block first.

    Block i of L (from 1) is kept with p_i = 1 - (i / L)(1 - theta). With compat = "deepspeed" it
    is p_{i-1}: bing_bert lowered p after drawing, so that the first block always runs.

    With depth_profile = "uniform" each is kept with the mean of these.

    With the schedule "stages" the first and the last block always run, and the others equally
    often, so that theta x L blocks run on average (RaPTr, arXiv:2402.05913).
    """
    if settings.schedule == "stages":
        between = num_layers - ALWAYS_KEPT
        if between <= 0:
            return [1.0] * num_layers
        kept = max(0.0, (theta * num_layers - ALWAYS_KEPT) / between)
        return [1.0, *[kept] * between, 1.0]
    if settings.depth_profile == "uniform":
        return [1 - (num_layers + 1) / (2 * num_layers) * (1 - theta)] * num_layers
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
    """Draw one drop mask: 0.0 skips a block, 1/p scales the branches of a kept one.

    The mask is that of the step that begins after `finished` steps, and of its draw number
    `draw`: of the micro-batch of that number, if every one has its own. Scaling by the p that was
    drawn with keeps the expected output of a branch what it is at full depth. With compat =
    "deepspeed" the scale is 1/p of the next block, as bing_bert computed it: at theta 0.5 and 12
    blocks every branch is 4 % to 8 % too large on average.
    """
    probabilities = keep_probabilities(theta, num_layers, settings)
    uniforms = _uniforms(seed, finished, draw, num_layers)
    scaled_by = probabilities
    if settings.compat == "deepspeed":
        scaled_by = [*probabilities[1:], theta]
    return [
        (1 / divisor if settings.rescale else 1.0) if uniform < p else 0.0
        for uniform, p, divisor in zip(uniforms, probabilities, scaled_by, strict=True)
    ]


def scales_of_step(
    finished: int, settings: RunSettings, *, theta: float, count: int
) -> list[list[float]]:
    """Draw the drop masks of the `count` micro-batches of a rank in one optimizer step.

    Where a step has a number of draws, each is of as many micro-batches, and so of the same share
    of the step's sequences on any number of ranks.
    """
    drop = settings.layer_drop
    draws = drop.draws or count
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


def check_layer_drop(settings: LayerDropSettings, num_layers: int) -> None:
    """Refuse what does not exist, cannot be done with so many blocks, or bing_bert never had.

    Raises:
        ConfigError: unknown schedule, a stage of fewer blocks than always run, or compat =
            "deepspeed" with what bing_bert never had.
    """
    lookup(KEEP_RATIOS, settings.schedule, setting="layer_drop.schedule")
    if settings.compat == "deepspeed" and settings.schedule != "progressive":
        raise ConfigError(
            f"layer_drop.compat='deepspeed' is defined for layer_drop.schedule='progressive', "
            f"not {settings.schedule!r}; set compat to none"
        )
    if settings.compat == "deepspeed" and settings.depth_profile == "uniform":
        raise ConfigError(
            "layer_drop.compat='deepspeed' repeats bing_bert, which had no "
            "layer_drop.depth_profile='uniform'; remove one of them"
        )
    if settings.schedule != "stages":
        return
    if num_layers <= ALWAYS_KEPT or min(settings.stages) * num_layers < ALWAYS_KEPT:
        raise ConfigError(
            f"layer_drop.stages={min(settings.stages):g} of model.num_layers={num_layers}: the "
            "first and the last block always run; give at least their share, or choose another "
            "schedule"
        )


def _uniforms(seed: int, finished: int, draw: int, num_layers: int) -> list[float]:
    counter = numpy.array([0, draw, finished, 0], dtype=numpy.uint64)
    key = numpy.array([seed, DROP_MASK_STREAM], dtype=numpy.uint64)
    generator = numpy.random.Generator(numpy.random.Philox(key=key, counter=counter))
    return [float(uniform) for uniform in generator.random(num_layers)]
