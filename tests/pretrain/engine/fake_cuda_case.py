"""Forward and backward passes on fake tensors of the device "cuda", which hold no values.

As a program: runs the cases that it is given as JSON, and prints what it found as JSON. It needs a
process of its own: a fake CUDA device stays in the process, and autograd asks for it once.

    fake_cuda_case.py LIBRARY CASES      LIBRARY: fake_cuda.cpp, compiled
"""

import ctypes
import json
import os
import sys
from typing import Any

ROWS, LENGTH, PREDICTIONS, VOCABULARY = 4, 32, 10, 128
LAYERS = 3

# What reads a value of the device, or has a shape that depends on one: the host waits.
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique")


def main(library: str, cases: str) -> None:
    """Run the cases and print the results."""
    fake = ctypes.CDLL(library)
    import torch

    fake.install()
    torch.cuda.is_bf16_supported = lambda including_emulation=True: True
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    print(json.dumps([run(**case) for case in json.loads(cases)]))


def run(
    words: list[str],
    attention: str,
    precision: str,
    *,
    compiled: bool = False,
) -> dict[str, Any]:
    """Run one forward and backward pass of the objective, of three blocks with the second skipped.

    Args:
        words: settings of the model.
        attention: backend.
        precision: fp32, bf16_autocast, fp16_autocast, fp16 or bf16.
        compiled: compile the blocks, up to the generation of code.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    computed, _, autocast = precision.partition("_")
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[computed]
    with FakeTensorMode() as fake, torch.device("cuda"):
        model = build_model(words, attention, torch.float32 if autocast else dtype)
        ids, positions, labels = (
            torch.empty(shape, dtype=torch.int64)
            for shape in ((ROWS, LENGTH), (PREDICTIONS,), (PREDICTIONS,))
        )
        x = torch.empty(ROWS, LENGTH, 64, dtype=torch.float32 if autocast else dtype)
    autocasting = torch.autocast("cuda", dtype=dtype, enabled=bool(autocast))
    log, graphs = operations_log(), []
    if compiled:
        encoder, outputs = model.encoder, []
        with fake:
            terms = encoder.positions.terms(LENGTH, device="cuda")
            scale = torch.ones((), device="cuda")
        for place, block in enumerate(encoder.blocks):
            block.compile(dynamic=False, fullgraph=True, backend=graph_backend(graphs))
            wanted = positions if place == LAYERS - 1 else None
            with autocasting:
                output = block(x, terms, scale, None, wanted)
            outputs.append(output)
        with fake:  # the gradient of a sum would be copied, outside of the mode
            upstream = [torch.ones_like(each) for each in outputs]
        torch.autograd.backward(outputs, upstream)
    else:
        with fake, log, autocasting:
            output = model(ids, positions, labels, [1.25, 0.0, 2.0])
        with fake, log:
            output.float().sum().backward()
    return {
        "output": [str(output.dtype), str(output.device), list(output.shape)],
        "gradients": {
            name: [str(p.grad.dtype), str(p.grad.device), p.grad.shape == p.shape]
            for name, p in model.named_parameters()
            if p.grad is not None
        },
        "off_device": sorted(log.off_device),
        "waiting": sorted(log.waiting),
        "operators": sorted(log.operators),
        "products": sorted(log.products),
        "graphs": graphs,
    }


def build_model(words: list[str], attention: str, dtype: Any) -> Any:
    """Return an objective on the current device with weights of this type."""
    import torch

    import pretrain.kernels.triton_attention  # noqa: F401 # registers its operators
    from pretrain.config.recipe import load_settings
    from pretrain.model.execution_plan import ExecutionPlan
    from pretrain.model.objectives.masked_language_model import MaskedLanguageModel

    plan = ExecutionPlan(attention=attention)
    size = ["--model.width", "64", "--model.num_heads", "2", "--model.num_layers", str(LAYERS)]
    size += ["--model.vocabulary_size", str(VOCABULARY)]
    settings = load_settings("tiny_cpu", [*size, *words])
    torch.set_default_dtype(dtype)
    try:
        return MaskedLanguageModel(settings.model, plan)
    finally:
        torch.set_default_dtype(torch.float32)


def graph_backend(graphs: list[list[str]]) -> Any:
    """Return a compiler that adds the operators of each graph, and generates no code."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compile_graph(graph: Any, inputs: Any) -> Any:
        del inputs
        called = (node for node in graph.graph.nodes if node.op == "call_function")
        graphs.append(sorted({str(node.target) for node in called}))
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=compile_graph, bw_compiler=compile_graph)


def operations_log() -> Any:
    """Return a mode that notes operators, and those that wait for the device or leave it."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Log(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.operators: set[str] = set()
            self.off_device: set[str] = set()
            self.waiting: set[str] = set()
            self.products: set[str] = set()  # types of the factors

        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            result = operator(*args, **(kwargs or {}))
            name = str(operator)
            self.operators.add(name)
            given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            tensors = [x for x in [*given, *tree_leaves(result)] if isinstance(x, torch.Tensor)]
            # Of torch's checkpoint: an empty tensor that only carries a gradient function.
            tensors = [tensor for tensor in tensors if tensor.numel()]
            if any(tensor.device.type != "cuda" for tensor in tensors):
                self.off_device.add(name)
            is_mask = [t.dtype == torch.bool for t in given[1:]]
            if any(part in name for part in WAITING) or ("index." in name and any(is_mask)):
                self.waiting.add(name)
            if name.split(".")[1] in ("mm", "addmm", "bmm", "baddbmm"):
                self.products |= {str(tensor.dtype) for tensor in given}
            return result

    return Log()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # the stub has no end of its own: torch's thread of the device may outlive it
