"""Search tiles of the attention kernels.

    python benchmarks/gpu/kernels.py FILE [--warm]         on a CPU with TRITON_INTERPRET=1

At the shape of BERT-Base, 64 x 512 tokens. Each tiling's result is compared with that of the
table's; `--warm` launches each once.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton

from pretrain.model.kernels import triton_attention as attention
from pretrain.model.kernels.triton_tilings import TILINGS, Tiling

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
B, N, S, H = (64, 12, 512, 64) if ON_GPU else (1, 1, 32, 16)
SCALE = 0.088
ROW = (90 if ON_GPU and torch.cuda.get_device_capability() >= (9, 0) else 80, 64)
# queries, keys, warps, stages
CANDIDATES = {
    "forward": [(128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3)],
    "query_gradient": [(64, 64, 4, 2), (64, 32, 4, 2), (64, 32, 4, 3), (32, 32, 4, 3)],
    "key_value_gradient": [(64, 64, 4, 3), (32, 64, 4, 2), (32, 64, 4, 3), (32, 32, 4, 3)],
    "bias_gradient": [(64, 64, 8, 2), (64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3)],
}


def main(file: Path, *, warm: bool) -> None:
    """Write what was found after each part."""
    torch.manual_seed(0)
    projected = torch.randn(B, S, 3, N, H, device=DEVICE, dtype=torch.bfloat16)
    bias = torch.randn(N, S, S, device=DEVICE)
    given = (projected, bias, torch.randn_like(projected[:, :, 0]))
    results: dict[str, Any] = {}
    for dropout in (0.0, 0.1) if ON_GPU and not warm else (0.0,):
        results[f"tilings, dropout {dropout}"] = search(ours(*given, dropout), warm=warm)
        file.write_text(json.dumps(results, indent=1))


def ours(projected: Any, bias: Any, d_o: Any, dropout: float) -> dict[str, Any]:
    """Return a call for each of our kernels."""
    seeds = torch.randint(2**31, (B, N, 2), dtype=torch.int32, device=DEVICE) if dropout else None
    read_bias = attention.bias_as_read(bias, projected.dtype)
    given = (projected, read_bias, None, seeds, SCALE, dropout)
    o, logsumexp = attention.attention_forward(projected, None, *given[1:])
    _, products = attention.attention_backward(*given, o, logsumexp, d_o)

    def gradients() -> Any:
        return attention.attention_backward(*given, o, logsumexp, d_o)[0]

    return {
        "forward": lambda: attention.attention_forward(projected, None, *given[1:])[0],
        "query_gradient": lambda: gradients()[:, :, 0],
        "key_value_gradient": lambda: gradients()[:, :, 1:],
        "bias_gradient": lambda: attention.attention_bias_gradient(
            *given, logsumexp, d_o, products
        ),
    }


def search(calls: dict[str, Any], *, warm: bool) -> list[dict[str, Any]]:
    """Return error and milliseconds of each tiling; the first of a kernel is the table's."""
    table, rows = TILINGS[ROW], []
    for kernel, call in calls.items():
        expected = call()
        for tiling in [tuple(getattr(table, kernel)), *CANDIDATES[kernel][: None if ON_GPU else 1]]:
            row: dict[str, Any] = {"kernel": kernel, "tiling": tiling}
            TILINGS[ROW] = table._replace(**{kernel: Tiling(*tiling)})
            try:
                row["error"] = error_of(call(), expected)
                row["milliseconds"] = None if warm else milliseconds(call)
            except Exception as error:
                row["problem"] = f"{type(error).__name__}: {str(error)[:120]}"
            rows.append(row)
            print(row, flush=True)
        TILINGS[ROW] = table
    return rows


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median duration of a call."""
    if ON_GPU:
        return float(triton.testing.do_bench(call, warmup=8, rep=40, return_mode="median"))
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the relative error in the Frobenius norm."""
    return float((found.float() - expected.float()).norm() / expected.float().norm())


if __name__ == "__main__":
    main(Path(sys.argv[1]), warm="--warm" in sys.argv)
