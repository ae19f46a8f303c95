"""Time one training step against Hugging Face's BertForMaskedLM, side by side in one run.

    python benchmarks/step_time.py [--shapes 4,256,128,32 12,512,128,16] [--json FILE]

A shape is layers,width,length,sequences. Ours is measured as it trains: through the DeepSpeed
engine, with the configuration and so the precision that `auto` takes on this machine. Hugging
Face's model is timed in every precision that it could use here (autocast): one ratio is to its step
in our precision, the other to its fastest. Then come the utilisation of the device's peak rate and
of the rate that a large matrix product reached in our precision in the same run, from the FLOPs
that the model needs (the predicted positions only). On a GPU the shapes are those of BERT-Base, and
both models are compiled. Run it on a quiet machine.
"""

import importlib.util
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

CPU_SHAPES = [(4, 256, 128, 32), (4, 512, 128, 32), (12, 512, 128, 16), (6, 512, 512, 8)]
GPU_SHAPES = [(12, 768, 128, 256), (12, 768, 512, 64)]
BERT_A = ("--model.positions", "bert-a", "--model.norm", "post")
TUPE_R = ("--model.positions", "tupe-r", "--model.norm", "pre")


def main() -> None:
    """Time all variants at all shapes and print a table of each."""
    options = parser(__doc__, steps=15)
    add_clock(options)
    options.add_argument(
        "--one-precision", action="store_true", help="Hugging Face in our precision only"
    )
    time_shapes(options, measure, cpu=CPU_SHAPES, gpu=GPU_SHAPES)


def measure(chosen: tuple[int, int, int, int], ranks: Any, arguments: Any) -> dict[str, Any]:
    """Time one shape, print its table and return its numbers."""
    import torch
    from training_step import (
        OurStep,
        Shape,
        hugging_face_step,
        measured_peak,
        precision_of_auto,
    )

    from pretrain.profiling.hardware import peak_flops

    shape = Shape(*chosen)
    dtype = precision_of_auto(ranks)
    builders: dict[str, Any] = {
        f"Tupelo bert-a post, {name_of(dtype)}": partial(OurStep, shape, "auto", ranks, *BERT_A),
        f"Tupelo tupe-r pre, {name_of(dtype)}": partial(OurStep, shape, "auto", ranks, *TUPE_R),
    }
    precisions = {dtype} if arguments.one_precision else {torch.float32, torch.bfloat16, dtype}
    if importlib.util.find_spec("transformers") is not None:
        theirs = {
            f"Hugging Face, {name_of(kind)}": partial(hugging_face_step, shape, ranks.device, kind)
            for kind in sorted(precisions, key=str)
        }
        builders = {**theirs, **builders}
    variants, failures = ready(builders)
    rates = [measured_peak(ranks, dtype)]
    timing = alternate(variants, arguments.steps, device=ranks.device, clock=arguments.clock)
    rates.append(measured_peak(ranks, dtype))
    peak = peak_flops(ranks.device, dtype)
    ours = {name: step for name, step in variants.items() if isinstance(step, OurStep)}
    flops = next(iter(ours.values())).flops([True] * shape.layers) if ours else 0.0
    steps = {}
    for name, measured in timing.seconds.items():
        found = spread(measured)
        steps[name] = {
            **found,
            "tokens_per_second": shape.tokens / found["median"],
            "model_flops_utilisation": flops / found["median"] / peak.flops_per_second,
            "share_of_matrix_rate": flops / found["median"] / max(rates),
        }
    others = [name for name in steps if name not in ours]
    numbers = {
        "shape": chosen,
        "precision": name_of(dtype),
        "hugging_face_best": min(others, key=lambda name: steps[name]["median"], default=None),
        "steps": steps,
        "failures": failures,
        "peak": {"flops_per_second": peak.flops_per_second, "source": peak.source},
        "matrix_rate": rates,
        "gpu": timing.gpu,
        "execution": {name: step.engine.execution.describe() for name, step in ours.items()},
    }
    print_table(shape, numbers)
    return numbers


def name_of(dtype: Any) -> str:
    """Return the name of a precision."""
    return {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[str(dtype).split(".")[-1]]


def print_table(shape: Any, numbers: dict[str, Any]) -> None:
    """Print medians, quartiles, tokens per second and ratios to Hugging Face's steps."""
    steps, precision = numbers["steps"], numbers["precision"]
    marks = [f"Hugging Face, {precision}", numbers["hugging_face_best"]]
    rows = []
    for name, found in steps.items():
        ratios = [
            f"{steps[mark]['median'] / found['median']:.2f}" if mark in steps else ""
            for mark in marks
        ]
        # Hugging Face's model computes all logits: its useful FLOPs are those of ours.
        shares = [
            f"{found[key]:.0%}" for key in ("model_flops_utilisation", "share_of_matrix_rate")
        ]
        tokens = f"{found['tokens_per_second']:,.0f}"
        rows.append((name, *milliseconds(found), tokens, *ratios, *shares))
    columns = (f"x HF {precision}", "x HF best", "MFU", f"of the {precision} rate")
    headers = ("", "median ms", "quartiles", "tokens/s", *columns)
    rate = max(numbers["matrix_rate"]) / 1e9
    print_rows(f"{shape}; {precision} matrix rate {rate:,.0f} GFLOP/s", headers, rows)


if __name__ == "__main__":
    run_program(lambda _: main())
