"""The numbers of a run that are drawn as curves, under the names that TensorBoard and W&B show."""

from typing import Any

from pretrain.config.settings import RunSettings
from pretrain.schedules.layer_drop import keep_probabilities
from pretrain.train.recording.metric_files import flat_numbers

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
OF_LAYER_DROP = ("theta", "keep_rates", "expected_flops", "full_depth_flops")


def scalars_of_metrics(metrics: dict[str, Any], settings: RunSettings) -> dict[str, float]:
    """Return the points of a line of metrics.jsonl, by the names of their curves.

    Beside the share of passes in which a layer ran stands what is expected of it at that step.
    Without layer drop, these numbers cannot change, and are left out.
    """
    # The parts of the loss in training stand beside it.
    shown = {name: value for name, value in metrics.items() if name not in ("step", "parts")}
    shown |= metrics.get("parts", {})
    if settings.layer_drop.schedule == "none":
        shown = {name: value for name, value in shown.items() if name not in OF_LAYER_DROP}
    numbers = flat_numbers(shown)
    if "keep_rates" in shown:
        expected = keep_probabilities(
            metrics["theta"], settings.model.num_layers, settings.layer_drop
        )
        of_layers = flat_numbers({"keep_rates": expected})
        numbers |= {f"{name}_expected": value for name, value in of_layers.items()}
    return {
        name if "/" in name else f"{GROUPS.get(name, 'train')}/{name}": float(value)
        for name, value in numbers.items()
        if value is not None
    }


def scalars_of_evaluation(evaluation: dict[str, Any]) -> dict[str, float]:
    """Return the points of a line of evals.jsonl, whose totals those of metrics contain."""
    parts = {f"held_out/{name}": mean for name, mean in evaluation.get("parts", {}).items()}
    return {"held_out/loss": float(evaluation["loss"]), **parts}
