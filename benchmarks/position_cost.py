"""Time a training step with untied positions against BERT-A's, side by side in one run.

    python benchmarks/position_cost.py [--shapes 4,512,128,32 4,512,512,8] [--json FILE]
    python benchmarks/position_cost.py --shapes 4,128,64,32 --vocabulary 8192 --positions t5 rope

The same PreLN encoder but for its positions: bert-a adds them to the words and has no attention
bias; tupe-a and tupe-r compute one for all layers (TUPE Eq. 10 and 11); `--positions` names others.
On a GPU with rows that are long enough, tupe-a is timed with its bias folded into the heads, too.
The steps take turns, and what is printed besides the medians is the median of the ratios within a
round, which a drift of the machine cannot touch.
"""

import statistics
from functools import partial
from typing import Any

from side_by_side import (
    add_clock,
    alternate,
    milliseconds,
    parser,
    print_rows,
    ready,
    spread,
    time_shapes,
)

from data_prep.files.program import run_program

CPU_SHAPES = [(4, 512, 128, 32), (4, 512, 512, 8)]
GPU_SHAPES = [(12, 768, 128, 256), (12, 768, 512, 64), (12, 768, 2048, 16)]
BASELINE = "bert-a"


def main() -> None:
    """Time all encodings at all shapes and print a table of each."""
    options = parser(__doc__, steps=21)
    add_clock(options)
    options.add_argument("--positions", nargs="+", default=["tupe-a", "tupe-r"])
    options.add_argument("--vocabulary", type=int, default=30_528, help="default: BERT's, padded")
    time_shapes(options, measure, cpu=CPU_SHAPES, gpu=GPU_SHAPES)


def measure(chosen: tuple[int, int, int, int], ranks: Any, arguments: Any) -> dict[str, Any]:
    """Time one shape, print its table and return its numbers."""
    from training_step import OurStep, Shape

    shape = Shape(*chosen, arguments.vocabulary)
    names = (BASELINE, *arguments.positions)
    words: dict[str, tuple[str, ...]] = {name: ("--model.positions", name) for name in names}
    if ranks.device == "cuda" and "tupe-a" in words:
        words["tupe-a, folded"] = ("--model.positions", "tupe-a", "--engine.attention", "folded")
    builders = {
        name: partial(OurStep, shape, "auto", ranks, "--model.norm", "pre", *positions)
        for name, positions in words.items()
    }
    variants, failures = ready(builders)
    timing = alternate(variants, arguments.steps, device=ranks.device, clock=arguments.clock)
    rows, numbers = [], {}
    for name, measured in timing.seconds.items():
        found = spread(measured)
        cost = None  # where the baseline failed
        if BASELINE in timing.seconds:
            pairs = zip(measured, timing.seconds[BASELINE], strict=True)
            cost = statistics.median(own / base for own, base in pairs) - 1
        attention = variants[name].engine.execution.attention
        numbers[name] = {**found, "cost": cost, "attention": attention}
        against = "-" if cost is None else f"{cost:+.1%}"
        rows.append((name, *milliseconds(found), against, attention))
    headers = ("", "median ms", "quartiles", f"against {BASELINE}", "attention")
    print_rows(str(shape), headers, rows)
    return {
        "shape": chosen,
        "vocabulary": shape.vocabulary,
        "positions": numbers,
        "failures": failures,
        "gpu": timing.gpu,
    }


if __name__ == "__main__":
    run_program(lambda _: main())
