"""The numbers of a run that are drawn as curves, under the names that TensorBoard and W&B show.

A number that cannot change during the run is left out: it is in metrics.jsonl.
"""

from typing import Any

from pretrain.config.settings import RunSettings
from pretrain.schedules.layer_drop import keep_probabilities
from pretrain.train.recording.metric_files import flat_numbers

HELD_OUT_LOSS = "held_out/loss"

# The group of charts of each number; "train" for others, and their own for shares and layers.
GROUPS = {
    "tokens_per_second": "speed",
    "processor_wait_share": "speed",
    "samples_per_second": "speed",
    "model_flops_utilisation": "speed",
    "peak_memory_bytes": "speed",
    "tokens": "totals",
    "training_seconds": "totals",
    "flops": "totals",
    "expected_flops": "totals",
    "full_depth_flops": "totals",
    "skipped_steps": "totals",
    "left_out_steps": "totals",
    "theta": "keep_rates",
}


class Scalars:
    """Turns lines of metrics into named points of curves."""

    def __init__(self, settings: RunSettings, launch: dict[str, Any]) -> None:
        """Decide what can change.

        Args:
            settings: of the run.
            launch: its line of launches.jsonl.
        """
        self._settings = settings
        self._constant = _constant(settings, launch)

    def of_metrics(self, metrics: dict[str, Any]) -> dict[str, float]:
        """Return the points of a line of metrics.jsonl.

        Beside the share of passes in which a layer ran stands what is expected of it at that step.
        """
        settings = self._settings
        expected = keep_probabilities(
            metrics["theta"], settings.model.num_layers, settings.layer_drop
        )
        numbers = flat_numbers(metrics) | {
            f"{name}_expected": value
            for name, value in flat_numbers({"keep_rates": expected}).items()
        }
        return {
            _curve(name): float(value)
            for name, value in numbers.items()
            if value is not None and name not in self._constant
        }

    def of_evaluation(self, evaluation: dict[str, Any]) -> dict[str, float]:
        """Return the points of a line of evals.jsonl, whose totals those of metrics contain."""
        parts = {f"held_out/{name}": mean for name, mean in evaluation.get("parts", {}).items()}
        return {HELD_OUT_LOSS: float(evaluation["loss"]), **parts}


def _curve(name: str) -> str:
    """Return the name of a number of metrics.jsonl with the group of its chart."""
    if name.startswith("parts/"):  # of the loss in training, beside it
        return f"train/{name.removeprefix('parts/')}"
    return name if "/" in name else f"{GROUPS.get(name, 'train')}/{name}"


def _constant(settings: RunSettings, launch: dict[str, Any]) -> set[str]:
    """Return the numbers that are equal in all lines, or equal to another one."""
    drop, rewinds = settings.layer_drop, "rewind" in settings.trouble.model_dump().values()
    constant = {"step"}
    # No layer is kept less often than at theta 0.
    least = keep_probabilities(0.0, settings.model.num_layers, drop)
    layers = {"keep_rates": [drop.schedule != "none" and keep < 1 for keep in least]}
    for name, changes in flat_numbers(layers).items():
        constant |= set() if changes else {name, f"{name}_expected"}
    if drop.schedule in ("none", "constant"):
        constant |= {"theta"}
    if drop.schedule == "none":  # they are equal to "flops"
        constant |= {"expected_flops", "full_depth_flops"}
    if launch["world_size"] == 1:
        constant |= {"time_shares/communication"}
    if not rewinds:
        constant |= {"left_out_steps"}
    if launch["precision"] != "float16":
        constant |= {"loss_scale"} | (set() if rewinds else {"skipped_steps"})
    return constant
