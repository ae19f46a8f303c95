"""Compare what layer drop saves with what the skipped FLOPs promise, side by side in one run.

    python benchmarks/layer_drop.py [--shapes 12,256,128,32] [--stages 0 1 2] [--json FILE]
    python benchmarks/layer_drop.py --draw-per sequence
    python benchmarks/layer_drop.py --shapes 12,64,64,32 --vocabulary 8192 --theta 0.875

Both compute in the precision of `auto` here. The coins are those of a run at one keep ratio,
tossed for each micro-batch, or for each block the rows on which it runs. A step with them and one
at full depth take turns. From the blocks that ran follow the FLOPs that were saved; `paid` is
the time that was saved over all rounds, as a share of that, with its standard error. The optimizer
does not know of skipped blocks: what it takes is shared by the micro-batches of a step
(--accumulation). Under torchrun every rank takes part and the first one prints.
"""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from side_by_side import (
    STEPS_PER_ROUND,
    add_clock,
    alternate,
    fail_after_errors,
    milliseconds,
    parser,
    print_rows,
    shape,
    spread,
    where_it_fits,
    write_json,
)

from data_prep.files.program import run_program
from pretrain.config.errors import ConfigError

if TYPE_CHECKING:
    from pretrain.schedules.layer_drop import BranchScale

CPU_SHAPES = [(12, 256, 128, 32)]
GPU_SHAPES = [(12, 768, 128, 256), (12, 768, 512, 64)]
RESAMPLINGS = 500
DS_CONFIGS = {"float32": "fp32", "bfloat16": "bf16_autocast", "float16": "fp16"}


def main() -> None:
    """Time all stages at all shapes and print a table."""
    options = parser(__doc__, steps=40)
    add_clock(options)
    options.add_argument("--shapes", type=shape, nargs="+", help="layers,width,length,sequences")
    options.add_argument("--accumulation", type=int, default=1, help="micro-batches of a step")
    options.add_argument("--draw-per", choices=("micro_batch", "sequence"), default="micro_batch")
    options.add_argument("--theta", type=float, default=0.5, help="keep ratio (default: 0.5)")
    options.add_argument("--vocabulary", type=int, default=30_528, help="default: BERT's, padded")
    options.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2], help="of ZeRO")
    arguments = options.parse_args()
    from pretrain.distributed.ranks import start_ranks, stop_ranks

    ranks = start_ranks()
    results: list[dict[str, Any]] = []
    for chosen in arguments.shapes or (CPU_SHAPES if ranks.device == "cpu" else GPU_SHAPES):
        for stage in arguments.stages:
            timed = partial(measure, stage=stage, ranks=ranks, arguments=arguments)
            results.append({"zero_stage": stage, **where_it_fits(chosen, timed)})
            if ranks.is_first:
                write_json(arguments.json, results)
        if ranks.is_first:
            print_table(results[-len(arguments.stages) :], arguments.vocabulary)
    stop_ranks()
    fail_after_errors(results)


def measure(
    chosen: tuple[int, int, int, int], stage: int, ranks: Any, arguments: Any
) -> dict[str, Any]:
    """Time one shape at one stage and return its numbers."""
    from training_step import OurStep, Shape, precision_of_auto

    shape = Shape(*chosen, arguments.vocabulary)
    kept: list[list[float]] = []
    name = ds_config_of(stage, str(precision_of_auto(ranks)).removeprefix("torch."))
    accumulation, steps = arguments.accumulation, arguments.steps
    words = dropping_words(arguments.theta, arguments.draw_per)
    tosses = coins(shape, words, arguments.theta, kept)
    dropping = OurStep(shape, name, ranks, *words, scales=tosses, accumulation=accumulation)
    full = OurStep(shape, name, ranks, accumulation=accumulation)
    both = {"full depth": full, "dropping": dropping}
    timing = alternate(both, steps, device=ranks.device, clock=arguments.clock)
    seconds = timing.seconds
    passes = accumulation * STEPS_PER_ROUND[ranks.device]  # of a round
    counted = kept[-steps * passes :]
    whole = full.flops([1] * shape.layers)
    shares = [dropping.flops(blocks) / whole for blocks in counted]
    computed = [statistics.mean(found) for found in zip(*[iter(shares)] * passes, strict=True)]
    rounds = list(zip(seconds["dropping"], seconds["full depth"], computed, strict=True))
    return {
        "shape": chosen,
        "vocabulary": shape.vocabulary,
        "theta": arguments.theta,
        "draw_per": arguments.draw_per,
        "precision": str(dropping.dtype).removeprefix("torch."),
        "accumulation": accumulation,
        "ranks": ranks.world_size,
        "full_depth": spread(seconds["full depth"]),
        "dropping": spread(seconds["dropping"]),
        "mean_blocks": statistics.mean(sum(blocks) for blocks in counted),
        "flops_saved": 1 - statistics.mean(computed),
        "paid": paid_share(rounds),
        "standard_error": standard_error(rounds),
        "gpu": timing.gpu,
    }


def ds_config_of(stage: int, precision: str) -> str:
    """Return the DeepSpeed configuration of a ZeRO stage in a precision.

    Raises:
        ConfigError: there is none.
    """
    if stage == 0 and precision == "float16":
        raise ConfigError("this GPU computes in fp16, which ZeRO stage 0 has not: --stages 1 2")
    return f"zero{stage}_{DS_CONFIGS[precision]}"


def paid_share(rounds: list[tuple[float, float, float]]) -> float:
    """Return the share of the time that was saved over that of the FLOPs.

    Args:
        rounds: seconds of the step that dropped, of the one beside it, and the share of the FLOPs
            that the first one did.
    """
    dropping, full, computed = (math.fsum(column) for column in zip(*rounds, strict=True))
    return (1 - dropping / full) / (1 - computed / len(rounds))


def standard_error(rounds: list[tuple[float, float, float]]) -> float:
    """Return by how much `paid_share` would vary with other rounds (bootstrap)."""
    generator = random.Random(0)
    draws = (generator.choices(rounds, k=len(rounds)) for _ in range(RESAMPLINGS))
    return statistics.stdev(paid_share(draw) for draw in draws)


def dropping_words(theta: float, draw_per: str = "micro_batch") -> tuple[str, ...]:
    """Return the settings of a run whose keep ratio is `theta` throughout."""
    schedule = ("--layer_drop.schedule", "constant", "--layer_drop.theta_bar", str(theta))
    return (*schedule, "--layer_drop.draw_per", draw_per)


def coins(
    shape: Any, words: Sequence[str], theta: float, kept: list[list[float]]
) -> Callable[[], "list[BranchScale]"]:
    """Return a function that tosses the next coins and notes on what share of rows blocks run."""
    from training_step import settings_of

    from pretrain.schedules.layer_drop import SequenceDraw, scales_of_step

    settings = settings_of(shape, 1, *words)

    def toss() -> "list[BranchScale]":
        (scales,) = scales_of_step(len(kept), settings, theta=theta, count=1)
        kept.append(
            [
                scale.window(shape.sequences)[1] / shape.sequences
                if isinstance(scale, SequenceDraw)
                else float(scale != 0)
                for scale in scales
            ]
        )
        return scales

    return toss


def print_table(results: list[dict[str, Any]], vocabulary: int) -> None:
    """Print the stages of one shape, each with the sequences that fitted."""
    layers, width, length, _ = results[0]["shape"]
    rows = [
        (
            f"ZeRO-{found['zero_stage']}, {found['precision']}, {found['ranks']} rank(s), "
            f"{found['accumulation']} x {found['shape'][3]} sequences a step",
            milliseconds(found["full_depth"])[0],
            milliseconds(found["dropping"])[0],
            f"{found['mean_blocks']:.2f}",
            f"{found['flops_saved']:.1%}",
            f"{found['paid']:.0%} ± {found['standard_error']:.0%}",
        )
        for found in results
        if "error" not in found
    ]
    headers = (
        "",
        "full ms",
        "dropping ms",
        "blocks run",
        "FLOPs saved",
        "paid",
    )
    title = f"{layers} layers, width {width}, rows of {length} tokens, vocabulary {vocabulary:,}"
    print_rows(title, headers, rows)


if __name__ == "__main__":
    run_program(lambda _: main())
