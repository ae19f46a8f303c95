"""Time a training step with each attention by row length: from which length on is ours faster?

    python benchmarks/short_rows.py [--shapes 4,768,128,256 4,768,256,128] [--json FILE]

TUPE-R, PreLN, as many tokens at every length, blocks compiled as a run on this machine has them:
`eager`, which the compiler fuses, against `triton` (on a CPU: `fused`). `auto` takes `eager` for
rows of at most `SHORT_ROWS` tokens (pretrain/engine/execution.py): the table decides the number.
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

CPU_SHAPES = [(4, 256, 64, 32), (4, 256, 128, 16), (4, 256, 256, 8)]
# The lengths beside today's limit first.
GPU_SHAPES = [(4, 768, length, 32_768 // length) for length in (128, 256, 64, 512)]
WORDS = ("--model.positions", "tupe-r", "--model.norm", "pre")
OURS = {"cpu": "fused", "cuda": "triton"}


def main() -> None:
    """Time both at all lengths and print a table of each."""
    options = parser(__doc__, steps=11)
    add_clock(options)
    time_shapes(options, measure, cpu=CPU_SHAPES, gpu=GPU_SHAPES)


def measure(chosen: tuple[int, int, int, int], ranks: Any, arguments: Any) -> dict[str, Any]:
    """Time one length, print its table and return its numbers."""
    from training_step import OurStep, Shape

    from pretrain.engine.execution import SHORT_ROWS

    shape, ours = Shape(*chosen), OURS[ranks.device]
    builders = {
        name: partial(OurStep, shape, "auto", ranks, *WORDS, "--engine.attention", name)
        for name in ("eager", ours)
    }
    variants, failures = ready(builders)
    timing = alternate(variants, arguments.steps, device=ranks.device, clock=arguments.clock)
    steps = {name: spread(seconds) for name, seconds in timing.seconds.items()}
    ratio = None
    if len(steps) == len(builders):
        pairs = zip(timing.seconds["eager"], timing.seconds[ours], strict=True)
        ratio = statistics.median(eager / own for eager, own in pairs)
    rows = [
        (name, *milliseconds(found), variants[name].engine.execution.describe())
        for name, found in steps.items()
    ]
    print_rows(str(shape), ("", "median ms", "quartiles", "execution"), rows)
    if ratio is not None:
        print(f"eager / {ours}: {ratio:.3f}, the median of the ratios within a round")
    return {
        "shape": chosen,
        "steps": steps,
        "ours": ours,
        "auto": "eager" if shape.length <= SHORT_ROWS and ranks.device == "cuda" else ours,
        "eager_over_ours": ratio,
        "failures": failures,
        "gpu": timing.gpu,
    }


if __name__ == "__main__":
    run_program(lambda _: main())
