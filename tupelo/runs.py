"""The comparison of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pretrain.reports.compare.convergence import Comparison


def compare(runs: Sequence[str | Path], *, target: str | float = "auto") -> "Comparison":
    """Compare runs with the first one, as `tupelo compare` does.

    Args:
        runs: at least two run folders, the baseline first; runs that differ only in the seed form
            one arm.
        target: a held-out loss in nats; "auto": the highest final loss of the arms that end at
            least 1 nat below the unigram entropy; with fewer than two, the baseline's.

    Returns:
        `arms`, `target`, `entropy` (the unigram entropy in nats, where a run recorded it) and
        `notes`; `reached(arm, axis)`, `left_plateau(arm, axis)` and `speed_up(arm, axis)` for the
        axes "step", "tokens", "flops" and "training_seconds", None where it was not reached or is
        not known.

    Raises:
        ConfigError: a folder holds no run, one without a finite evaluation, or runs that cannot be
            compared.
    """
    from pretrain.reports.compare.convergence import compare as compare_runs
    from pretrain.reports.compare.runs import read_run

    folders = [runs] if isinstance(runs, str | Path) else runs
    return compare_runs([read_run(Path(folder)) for folder in folders], str(target))
