"""Search tiles of the attention kernels, and time cuDNN's attention with a learned bias.

    python benchmarks/gpu/kernels.py --json FILE [--warm]      on a CPU with TRITON_INTERPRET=1

At the shape of BERT-Base, 64 x 512 tokens. Each tiling's result is compared with that of the
table's; `--warm` launches each once. Nobody has seen cuDNN's graphs run: a failure is an answer.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton

from pretrain.kernels import triton_attention as attention
from pretrain.kernels.triton_tilings import TILINGS, Tiling

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
B, N, S, H = (64, 12, 512, 64) if ON_GPU else (1, 1, 32, 16)
SCALE = 0.088
ROW = (90 if ON_GPU and torch.cuda.get_device_capability() >= (9, 0) else 80, 64)
# queries, keys, warps, stages
CANDIDATES = {
    "forward": [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 2)],
    "query_gradient": [(64, 64, 4, 3), (128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 4, 3)],
    "key_value_gradient": [(64, 64, 4, 2), (64, 64, 4, 3), (32, 64, 4, 3), (32, 128, 8, 2)],
    "bias_gradient": [(64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 8, 2), (128, 64, 8, 2)],
}


class Inputs:
    """One block's attention: q, k, v as views of one projection, a bias, a gradient."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        projected = torch.randn(B, S, 3, N, H, device=DEVICE, dtype=torch.bfloat16)
        self.q, self.k, self.v = projected.permute(2, 0, 3, 1, 4)
        self.bias = torch.randn(N, S, S, device=DEVICE)
        self.d_o = torch.randn(B, S, N, H, device=DEVICE, dtype=torch.bfloat16).transpose(1, 2)

    def calls(self, dropout: float) -> dict[str, Callable[[], Any]]:
        """Return the three operators, to be launched."""
        seeds = None
        if dropout:
            seeds = torch.randint(2**31, (B, N, 2), dtype=torch.int32, device=DEVICE)
        given = (self.q, self.k, self.v, self.bias, None, seeds, SCALE, dropout)
        o, logsumexp = attention.attention_forward(*given)
        *_, products = attention.attention_backward(*given, o, logsumexp, self.d_o)
        backward = (*given, o, logsumexp, self.d_o)
        bias = (*given, logsumexp, self.d_o, products)
        return {
            "forward": lambda: attention.attention_forward(*given)[0],
            "query_gradient": lambda: attention.attention_backward(*backward)[0],
            "key_value_gradient": lambda: torch.cat(attention.attention_backward(*backward)[1:3]),
            "bias_gradient": lambda: attention.attention_bias_gradient(*bias),
        }


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median duration of a call."""
    if ON_GPU:
        return float(triton.testing.do_bench(call, warmup=8, rep=40, return_mode="median"))
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)


def search(inputs: Inputs, dropout: float, *, warm: bool) -> list[dict[str, Any]]:
    """Return error and milliseconds of each tiling; the first of a kernel is the table's."""
    table, rows = TILINGS[ROW], []
    for kernel, call in inputs.calls(dropout).items():
        expected = call().float()
        for tiling in [tuple(getattr(table, kernel)), *CANDIDATES[kernel][: None if ON_GPU else 1]]:
            row: dict[str, Any] = {"kernel": kernel, "dropout": dropout, "tiling": tiling}
            TILINGS[ROW] = table._replace(**{kernel: Tiling(*tiling)})
            try:
                found = call().float()
                row["error"] = float((found - expected).norm() / expected.norm())
                if not warm:
                    row["milliseconds"] = milliseconds(call)
            except Exception as error:
                row["problem"] = f"{type(error).__name__}: {str(error)[:120]}"
            rows.append(row)
            print(row, flush=True)
        TILINGS[ROW] = table
    return rows


def cudnn_attention(inputs: Inputs) -> dict[str, Any]:
    """Return the errors of cuDNN's attention against ours, and its milliseconds."""
    import cudnn  # type: ignore[import-not-found]

    half, single = cudnn.data_type.BFLOAT16, cudnn.data_type.FLOAT
    handle = cudnn.create_handle() if ON_GPU else None
    bias = inputs.bias[None].bfloat16()
    o, d_bias = torch.empty_like(inputs.d_o), torch.empty_like(bias)
    stats = torch.empty(B, N, S, 1, device=DEVICE)
    gradients = torch.empty(B, S, 3, N, H, device=DEVICE, dtype=torch.bfloat16)
    dq, dk, dv = gradients.permute(2, 0, 3, 1, 4)
    given = {"q": inputs.q, "k": inputs.k, "v": inputs.v, "bias": bias}

    def graph(tensors: dict[str, torch.Tensor]) -> tuple[Any, dict[str, Any]]:
        types = {"io_data_type": half, "intermediate_data_type": single}
        made = cudnn.pygraph(
            **types, compute_data_type=single, **({"handle": handle} if handle else {})
        )
        kinds = {torch.bfloat16: half, torch.float32: single}
        return made, {
            name: made.tensor(
                name=name, dim=list(x.shape), stride=list(x.stride()), data_type=kinds[x.dtype]
            )
            for name, x in tensors.items()
        }

    def runnable(made: Any, values: dict[Any, torch.Tensor]) -> Callable[[], None]:
        made.validate()
        if handle is None:
            return lambda: None
        made.build_operation_graph()
        made.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        made.check_support()
        made.build_plans()
        space = torch.empty(made.get_workspace_size(), dtype=torch.uint8, device=DEVICE)
        return lambda: made.execute(values, space, handle=handle)

    made, names = graph(given)
    output, sums = made.sdpa(name="f", **names, attn_scale=SCALE, generate_stats=True)
    output.set_output(True).set_dim(list(o.shape)).set_stride(list(o.stride()))
    sums.set_output(True).set_data_type(single)
    values = {names[name]: x for name, x in given.items()} | {output: o, sums: stats}
    forward = runnable(made, values)
    given |= {"o": o, "dO": inputs.d_o, "stats": stats}
    made, names = graph({**given, "dBias": d_bias})
    d_names = made.sdpa_backward(name="b", **names, attn_scale=SCALE)
    for name, x in zip(d_names, (dq, dk, dv), strict=True):
        name.set_output(True).set_dim(list(x.shape)).set_stride(list(x.stride()))
    names["dBias"].set_output(True)
    values = {names[name]: x for name, x in {**given, "dBias": d_bias}.items()}
    backward = runnable(made, values | dict(zip(d_names, (dq, dk, dv), strict=True)))
    if handle is None:
        return {"graphs": "validated"}
    forward(), backward()
    ours, found = inputs.calls(0.0), {"forward": o, "query_gradient": dq}
    found |= {"key_value_gradient": torch.cat((dk, dv)), "bias_gradient": d_bias[0]}
    expected = {name: call().float() for name, call in ours.items()}
    errors = {
        name: float((x.float() - expected[name]).norm() / expected[name].norm())
        for name, x in found.items()
    }
    return {
        "errors": errors,
        "forward_ms": milliseconds(forward),
        "backward_with_bias_ms": milliseconds(backward),
    }


def main() -> None:
    """Write the rows after each part."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", type=Path, required=True)
    options.add_argument("--warm", action="store_true")
    given = options.parse_args()
    inputs, results = Inputs(), dict[str, Any]()
    if not given.warm:
        try:
            results["cudnn"] = cudnn_attention(inputs)
        except Exception as error:
            results["cudnn"] = {"problem": f"{type(error).__name__}: {str(error)[:200]}"}
        print(results["cudnn"], flush=True)
    for dropout in (0.0,) if given.warm or not ON_GPU else (0.0, 0.1):
        results[f"tilings, dropout {dropout}"] = search(inputs, dropout, warm=given.warm)
        given.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
