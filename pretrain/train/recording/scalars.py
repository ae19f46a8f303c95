"""The numbers of a run that are drawn as curves, under the names that TensorBoard and W&B show."""

from typing import Any

from pretrain.config.settings import RunSettings
from pretrain.schedules.layer_drop import keep_probabilities

# The group of charts of a number; "train" for others.
GROUPS = {
    "speed": (
        *("tokens_per_second", "samples_per_second", "model_flops_utilisation"),
        *("processor_wait_share", "peak_memory_bytes"),
    ),
    "totals": (
        *("tokens", "training_seconds", "flops", "expected_flops", "full_depth_flops"),
        *("skipped_steps", "left_out_steps"),
    ),
    "keep_rates": ("theta",),
}
OF_LAYER_DROP = ("theta", "expected_flops", "full_depth_flops")


def scalars_of_metrics(metrics: dict[str, Any], settings: RunSettings) -> dict[str, float]:
    """Return the points of a line of metrics.jsonl, by the names of their curves.

    Beside the share of passes in which a layer ran stands what is expected of it at that step.
    Without layer drop, these numbers cannot change, and are left out.
    """
    # The parts of the loss in training stand beside it.
    shown = metrics | metrics.get("parts", {})
    found: dict[str, float | None] = {}
    rates = shown.pop("keep_rates", [])
    if settings.layer_drop.schedule == "none":
        shown = {name: value for name, value in shown.items() if name not in OF_LAYER_DROP}
    else:
        expected = keep_probabilities(metrics["theta"], len(rates), settings.layer_drop)
        for layer, numbers in enumerate(zip(rates, expected, strict=True), 1):
            names = (f"keep_rates/layer_{layer:02d}{kind}" for kind in ("", "_expected"))
            found |= zip(names, numbers, strict=True)
    groups = {name: group for group, names in GROUPS.items() for name in names}
    for name, value in shown.items():
        if name not in ("step", "parts"):
            found[f"{groups.get(name, 'train')}/{name}"] = value
    return {name: float(value) for name, value in found.items() if value is not None}


def scalars_of_evaluation(evaluation: dict[str, Any]) -> dict[str, float]:
    """Return the points of a line of evals.jsonl, whose totals those of metrics contain."""
    parts = {f"held_out/{name}": mean for name, mean in evaluation.get("parts", {}).items()}
    return {"held_out/loss": float(evaluation["loss"]), **parts}
