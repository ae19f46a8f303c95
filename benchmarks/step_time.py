"""Time one training step against Hugging Face's BertForMaskedLM, side by side in one run.

    python benchmarks/step_time.py [--shapes 4,256,128,32 12,512,128,16] [--json FILE]

A shape is layers,width,length,sequences. Ours is measured as it trains: through the DeepSpeed
engine, with the configuration that this machine gets by default. Besides the ratio to Hugging
Face the table gives the share of the rate that a large matrix product reached in the same run,
from the FLOPs that the model needs (the predicted positions only). On a GPU the shapes are those
of BERT-Base and fp16 with the fused Adam is a variant. Run it on a quiet machine.
"""

import gc
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

CPU_SHAPES = [(4, 256, 128, 32), (4, 512, 128, 32), (12, 512, 128, 16), (6, 512, 512, 8)]
GPU_SHAPES = [(12, 768, 128, 256), (12, 768, 512, 64)]
BASELINE = "Hugging Face, bf16"
BERT_A = ("--model.positions", "bert-a", "--model.norm", "post")
TUPE_R = ("--model.positions", "tupe-r", "--model.norm", "pre")


def main() -> None:
    """Time all variants at all shapes and print a table of each."""
    restart_with(ALLOCATOR)
    options = parser(__doc__, steps=15)
    options.add_argument("--shapes", type=shape, nargs="+", help="layers,width,length,sequences")
    options.add_argument("--no-fp32", action="store_true", help="leave Hugging Face in fp32 out")
    arguments = options.parse_args()
    from pretrain.distributed.ranks import start_ranks

    ranks = start_ranks()
    results = []
    for chosen in arguments.shapes or (CPU_SHAPES if ranks.device == "cpu" else GPU_SHAPES):
        results.append(measure(chosen, ranks, arguments))
        gc.collect()
    write_json(arguments.json, results)


def measure(chosen: tuple[int, int, int, int], ranks: Any, arguments: Any) -> dict[str, Any]:
    """Time one shape, print its table and return its numbers."""
    import torch
    from training_step import OurStep, Shape, hugging_face_step, measured_peak

    shape = Shape(*chosen)
    ours = {
        "Tupelo bert-a post, bf16": OurStep(shape, "zero0_bf16_autocast", ranks, *BERT_A),
        "Tupelo tupe-r pre, bf16": OurStep(shape, "zero0_bf16_autocast", ranks, *TUPE_R),
    }
    if ranks.device == "cuda":
        fused = ("--optimizer.kind", "deepspeed")
        ours["Tupelo tupe-r pre, fp16"] = OurStep(shape, "zero1_fp16", ranks, *TUPE_R, *fused)
    theirs = {BASELINE: hugging_face_step(shape, ranks.device, torch.bfloat16)}
    if not arguments.no_fp32:
        theirs = {"Hugging Face, fp32": hugging_face_step(shape, ranks.device, None), **theirs}
    rates = [measured_peak(ranks, torch.bfloat16)]
    seconds = alternate({**theirs, **ours}, arguments.steps, clock=arguments.clock)
    rates.append(measured_peak(ranks, torch.bfloat16))
    flops = ours["Tupelo bert-a post, bf16"].flops([True] * shape.layers)
    table = {}
    for name, measured in seconds.items():
        found = spread(measured)
        table[name] = {
            **found,
            "tokens_per_second": shape.tokens / found["median"],
            "share_of_matrix_rate": flops / found["median"] / max(rates),
        }
    print_table(shape, table, max(rates))
    attention = {name: step.engine.execution.describe() for name, step in ours.items()}
    return {"shape": chosen, "steps": table, "matrix_rate": rates, "execution": attention}


def print_table(shape: Any, table: dict[str, dict[str, float]], rate: float) -> None:
    """Print medians, quartiles, tokens per second and ratios to the baseline."""
    rows = []
    for name, found in table.items():
        ratio = table[BASELINE]["median"] / found["median"]
        # Hugging Face's model computes all logits: its useful FLOPs are those of ours.
        share = f"{found['share_of_matrix_rate']:.0%}"
        tokens = f"{found['tokens_per_second']:,.0f}"
        rows.append((name, *milliseconds(found), tokens, f"{ratio:.2f}", share))
    headers = ("", "median ms", "quartiles", "tokens/s", "x HF bf16", "of the bf16 rate")
    print_rows(f"{shape}; bf16 matrix rate {rate / 1e9:,.0f} GFLOP/s", headers, rows)


if __name__ == "__main__":
    main()
