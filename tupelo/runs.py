"""The curves of a run as tables of pandas, and the comparison of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from data_prep.files.extras import require
from pretrain.config.errors import ConfigError
from pretrain.reports.compare.run_files import Evaluation, Metrics, read_checked_lines
from pretrain.train.recording.metric_files import flat_numbers

if TYPE_CHECKING:
    import pandas

    from pretrain.reports.compare.convergence import Comparison


class Curves(NamedTuple):
    """The tables of a run: one row per line, the step as index."""

    metrics: "pandas.DataFrame"  # of training, see `log_every_steps`
    evaluations: "pandas.DataFrame"  # of the held-out rows, see `evaluation.every_steps`


def curves(run: str | Path) -> Curves:
    """Read the curves of a run, also of one that is training or has diverged.

    The columns are the numbers of metrics.jsonl and evals.jsonl: losses in nats, `tokens` and
    `flops` since the start of the run, `training_seconds` without evaluation and checkpoints,
    `theta`. A list or a table gets a column per entry: "keep_rates/layer_01",
    "time_shares/forward".

    Args:
        run: a run folder.

    Raises:
        ConfigError: it is none, or a line is damaged.
        MissingPackage: pandas is not installed.
    """
    folder = Path(run)
    if not (folder / "run.json").is_file():
        raise ConfigError(f"{folder} is not a run folder: it has no run.json")
    return Curves(
        _table(read_checked_lines(folder / "metrics.jsonl", Metrics)),
        _table(read_checked_lines(folder / "evals.jsonl", Evaluation)),
    )


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


def _table(lines: list[dict[str, Any]]) -> "pandas.DataFrame":
    require("pandas", by="curves")
    import pandas

    table = pandas.DataFrame([flat_numbers(line) for line in lines])
    return table.set_index("step") if lines else table
