"""Compare what layer drop saves with what the skipped FLOPs promise, side by side in one run.

    python benchmarks/layer_drop.py [--shapes 12,256,128,32] [--stages 0 1 2] [--json FILE]

The coins are those of a run at its end (theta_bar 0.5). A step with them and one at full depth
take turns. From the blocks that ran follow the FLOPs that were saved; `paid` is the saved time as
a share of that, from the median step of each depth. Under torchrun every rank takes part and the
first one prints.
"""

import gc
import statistics
from collections.abc import Callable
from typing import Any

from side_by_side import (
    ALLOCATOR,
    alternate,
    milliseconds,
    parser,
    print_rows,
    restart_with,
    shape,
    spread,
    write_json,
)

CPU_SHAPES = [(12, 256, 128, 32)]
GPU_SHAPES = [(12, 768, 128, 256), (12, 768, 512, 64)]
THETA_BAR = 0.5
DROP = ("--layer_drop.schedule", "constant", "--layer_drop.theta_bar", str(THETA_BAR))


def main() -> None:
    """Time all stages at all shapes and print a table."""
    restart_with(ALLOCATOR)
    options = parser(__doc__, steps=40)
    options.add_argument("--shapes", type=shape, nargs="+", help="layers,width,length,sequences")
    options.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2], help="of ZeRO")
    arguments = options.parse_args()
    from pretrain.ranks import start_ranks, stop_ranks

    ranks = start_ranks()
    results = []
    for chosen in arguments.shapes or (CPU_SHAPES if ranks.device == "cpu" else GPU_SHAPES):
        found = []
        for stage in arguments.stages:
            found.append(measure(chosen, stage, ranks, arguments))
            gc.collect()
        results += found
        if ranks.is_first:
            print_table(chosen, found)
    if ranks.is_first:
        write_json(arguments.json, results)
    stop_ranks()


def measure(
    chosen: tuple[int, int, int, int], stage: int, ranks: Any, arguments: Any
) -> dict[str, Any]:
    """Time one shape at one stage and return its numbers."""
    from training_step import OurStep, Shape

    shape = Shape(*chosen)
    kept: list[int] = []
    name = f"zero{stage}_bf16_autocast"
    dropping = OurStep(shape, name, ranks, *DROP, scales=coins(shape.layers, kept))
    full = OurStep(shape, name, ranks)
    steps = arguments.steps
    both = {"full depth": full, "dropping": dropping}
    seconds = alternate(both, steps, clock=arguments.clock)
    counted = kept[-steps:]
    flops_saved = 1 - sum(map(full.flops, counted)) / (steps * full.flops(shape.layers))
    time_saved = 1 - typical_sum(seconds["dropping"], counted) / typical_sum(
        seconds["full depth"], [shape.layers] * steps
    )
    return {
        "shape": chosen,
        "zero_stage": stage,
        "ranks": ranks.world_size,
        "full_depth": spread(seconds["full depth"]),
        "dropping": spread(seconds["dropping"]),
        "mean_blocks": statistics.mean(counted),
        "flops_saved": flops_saved,
        "time_saved": time_saved,
        "paid": time_saved / flops_saved,
    }


def typical_sum(seconds: list[float], blocks: list[int]) -> float:
    """Return the time of all steps if each took the median of those with as many blocks."""
    return sum(
        statistics.median(
            taken for taken, depth in zip(seconds, blocks, strict=True) if depth == own
        )
        for own in blocks
    )


def coins(layers: int, kept: list[int]) -> Callable[[], list[float]]:
    """Return a function that tosses the coins of the next step and notes how many blocks run."""
    from pretrain.config import LayerDropSettings
    from pretrain.layer_drop import branch_scales

    settings = LayerDropSettings(schedule="constant", theta_bar=THETA_BAR)

    def toss() -> list[float]:
        scales = branch_scales(len(kept), 0, settings, theta=THETA_BAR, num_layers=layers, seed=0)
        kept.append(sum(scale != 0 for scale in scales))
        return scales

    return toss


def print_table(chosen: tuple[int, int, int, int], results: list[dict[str, Any]]) -> None:
    """Print the stages of one shape."""
    from training_step import Shape

    rows = [
        (
            f"ZeRO-{found['zero_stage']}, {found['ranks']} rank(s)",
            milliseconds(found["full_depth"])[0],
            milliseconds(found["dropping"])[0],
            f"{found['mean_blocks']:.2f}",
            f"{found['flops_saved']:.1%}",
            f"{found['time_saved']:.1%}",
            f"{found['paid']:.0%}",
        )
        for found in results
    ]
    headers = (
        "",
        "full ms",
        "dropping ms",
        "blocks run",
        "FLOPs saved",
        "time saved",
        "paid",
    )
    print_rows(str(Shape(*chosen)), headers, rows)


if __name__ == "__main__":
    main()
