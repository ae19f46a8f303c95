"""The plateau at the unigram entropy, and a target below it.

A masked language model first learns how often words occur, and its held-out loss rests near the
entropy of these frequencies until attention is of use. Above or near the entropy, a comparison
shows which arm left the plateau first, and little about what the arms learn from context.
"""

import math
import statistics
from collections.abc import Sequence

from pretrain.compare.runs import Arm
from pretrain.config.errors import ConfigError
from pretrain.config.settings import REPLACED_TOKEN_DETECTION

# In nats below the entropy. At 0.3 a loss falls quickly, so that the place is sharp.
PLATEAU_MARGIN = 0.3
TARGET_MARGIN = 1.0


def entropy_of(arms: Sequence[Arm]) -> float | None:
    """Return the unigram entropy of the held-out predictions in nats; None: none is recorded.

    All runs of a comparison predict the same held-out words, so one run that recorded it suffices.
    Frequencies come from the training text: where texts differ, the lowest entropy counts, below
    which an arm is behind the plateau of any of them. Replaced-token detection has none: of its
    loss, a predicted word is a small part.
    """
    arms = [arm for arm in arms if arm.compared_settings["objective"] != REPLACED_TOKEN_DETECTION]
    found = {launch.get("frequency_entropy") for arm in arms for launch in arm.launches}
    return min((entropy for entropy in found if entropy is not None), default=None)


def is_near_plateau(loss: float, entropy: float | None) -> bool:
    """Return whether a held-out loss is less than `TARGET_MARGIN` below a known entropy."""
    return entropy is not None and loss > entropy - TARGET_MARGIN


def automatic_target(arms: Sequence[Arm], entropy: float | None) -> float:
    """Return a held-out loss behind the plateau that most arms reach, or else the baseline's.

    It is the highest final loss of the arms that end behind the plateau, if these are two at
    least; otherwise the final loss of the baseline, or where it diverged, the highest of the arms
    that did not. Over seeds the median counts, of an even
    number the higher one in the middle: at least half of the runs reach it, and so does their
    median.

    Raises:
        ConfigError: most runs of every arm diverged.
    """
    ends = [_end(arm) for arm in arms]
    behind = [end for end in ends if entropy is not None and not is_near_plateau(end, entropy)]
    if len(behind) > 1:
        return max(behind)
    finite = [end for end in ends if math.isfinite(end)]
    if not finite:
        raise ConfigError("most runs of every arm diverged; give a --target in nats")
    return ends[0] if math.isfinite(ends[0]) else max(finite)


def _end(arm: Arm) -> float:
    return statistics.median_high(arm.values(lambda run: run.final_loss))
