"""Train a few steps in every precision and with every AdamW, and compare the losses with fp32.

    python benchmarks/precisions.py [--shapes 12,768,512,64] [--steps 40] [--json FILE]

TUPE-R, PreLN, from the same weights on one batch of random tokens, which each variant learns by
heart. A step that fp16 skipped because of an overflow counts as no step: losses are compared after
the same number of updates. What cannot run here is listed with its reason.
"""

import math
import time
from functools import partial
from typing import Any, NamedTuple

from side_by_side import (
    attempted,
    parser,
    print_rows,
    release_memory,
    time_shapes,
    wait_for,
)

from data_prep.files.program import run_program

CPU_SHAPES = [(4, 256, 128, 8)]
GPU_SHAPES = [(12, 768, 512, 64)]
WORDS = ("--model.positions", "tupe-r", "--model.norm", "pre")
REFERENCE = "fp32, torch's AdamW"


class Variant(NamedTuple):
    """A precision and an optimizer."""

    ds_config: str
    optimizer: str

    def obstacle(self, device: str) -> str | None:
        """Return why it cannot run here, or None."""
        import torch

        from pretrain.engine.optimizers import OPTIMIZERS

        if device == "cpu":
            is_possible = "fp16" not in self.ds_config and self.optimizer == "torch"
            return None if is_possible else "it needs an NVIDIA GPU"
        if "bf16" in self.ds_config and not torch.cuda.is_bf16_supported(including_emulation=False):
            return "this GPU does not compute in bf16"
        return OPTIMIZERS[self.optimizer].obstacle_to_build()


VARIANTS = {
    REFERENCE: Variant("zero0_fp32", "torch"),
    "bf16, torch's AdamW": Variant("zero0_bf16_autocast", "torch"),
    "fp16, torch's AdamW": Variant("zero1_fp16", "torch"),
    "bf16, DeepSpeed's FusedAdam": Variant("zero0_bf16_autocast", "deepspeed"),
    "fp16, DeepSpeed's FusedAdam": Variant("zero1_fp16", "deepspeed"),
}


def main() -> None:
    """Train all variants at all shapes and print a table of each."""
    options = parser(__doc__, steps=40, counts="updates of each variant, at least 2")
    time_shapes(options, measure, cpu=CPU_SHAPES, gpu=GPU_SHAPES)


def measure(chosen: tuple[int, int, int, int], ranks: Any, arguments: Any) -> dict[str, Any]:
    """Train at one shape, print its table and return its numbers."""
    from training_step import Shape

    found: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    failures: dict[str, str] = {}
    for name, variant in VARIANTS.items():
        reason = variant.obstacle(ranks.device)
        if reason is not None:
            skipped[name] = reason
            continue
        training = partial(train, Shape(*chosen), variant, ranks, arguments.steps)
        found |= attempted({name: training}, failures)
        release_memory()
    expected = found[REFERENCE]["losses"] if REFERENCE in found else []
    for numbers in found.values():
        numbers["difference"] = largest_difference(numbers["losses"], expected)
    print_table(Shape(*chosen), found, skipped)
    return {"shape": chosen, "variants": found, "skipped": skipped, "failures": failures}


def train(shape: Any, variant: Variant, ranks: Any, steps: int) -> dict[str, Any]:
    """Take so many updates and return losses, skipped steps and the time of a later step."""
    from training_step import OurStep

    words = (*WORDS, "--optimizer.kind", variant.optimizer)
    step = OurStep(shape, variant.ds_config, ranks, *words)
    results = []
    steps = max(2, steps)  # the first half compiles, and lowers the loss scale; the second is timed
    half = steps // 2
    for _ in range(half):
        results.append(step())
    wait_for(ranks.device)
    start = time.perf_counter()
    while sum(not result.skipped for result in results) < steps and len(results) < 3 * steps:
        results.append(step())
    wait_for(ranks.device)
    seconds = (time.perf_counter() - start) / (len(results) - half)
    return {
        "losses": [float(result.losses.mean()) for result in results if not result.skipped],
        "skipped_steps": sum(result.skipped for result in results),
        "loss_scale": results[-1].loss_scale,
        "seconds": seconds,
        "execution": step.engine.execution.describe(),
    }


def largest_difference(losses: list[float], reference: list[float]) -> float:
    """Return the largest relative difference of losses after the same number of updates."""
    pairs = zip(losses, reference, strict=False)  # one that overflowed too often has fewer
    differences = [abs(own - other) / other for own, other in pairs]
    if any(map(math.isnan, differences)):  # which max() passes over behind a number
        return math.inf
    return max(differences, default=math.inf)


def print_table(shape: Any, found: dict[str, Any], others: dict[str, str]) -> None:
    """Print one row per variant, and the reasons of those that did not run."""
    rows = [
        (
            name,
            f"{numbers['losses'][0]:.3f} - {numbers['losses'][-1]:.3f}",
            f"{numbers['difference']:.2%}",
            str(numbers["skipped_steps"]),
            f"{numbers['seconds'] * 1e3:.0f}",
        )
        for name, numbers in found.items()
    ]
    print_rows(str(shape), ("", "loss", "from fp32", "skipped", "step ms"), rows)
    for name, reason in others.items():
        print(f"{name}: {reason}")


if __name__ == "__main__":
    run_program(lambda _: main())
