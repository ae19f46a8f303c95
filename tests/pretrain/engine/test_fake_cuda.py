"""Passes over fake tensors of the device "cuda": types, devices and operators, without a GPU.

The device is a stub of ours (fake_cuda.cpp), so that builds of torch for CPUs run it too. Which of
torch's own attention kernels a GPU would take is not seen, nor is any number.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pretrain.engine.execution import RELATIVE_KEYS
from pretrain.model.positions import POSITION_ENCODINGS
from tests.forked_command import PYTHONPATH
from tests.pretrain.engine import fake_cuda_case as case

HERE = Path(__file__).parent
TORCH = Path(torch.__file__).parent
KERNELS = {
    "tupelo.attention_forward.default",
    "tupelo.attention_backward.default",
    "tupelo.attention_bias_gradient.default",
}
# In a build for CUDA, torch's attention asks cuDNN for its version, which needs a GPU.
ATTENTIONS = ("eager", "triton", *(() if torch.version.cuda else ("sdpa", "folded")))
NO_DROPOUT = ("folded",)
PRECISIONS = ("fp32", "bf16_autocast", "fp16_autocast", "fp16", "bf16")
BACKENDS = [
    (positions, attention)
    for positions, attention in itertools.product(POSITION_ENCODINGS, ATTENTIONS)
    if attention != "folded" or POSITION_ENCODINGS[positions].is_foldable
    if attention in RELATIVE_KEYS or not POSITION_ENCODINGS[positions].has_relative_keys
]

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="the stub of the device is written in C++"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU shows more"),
]


@pytest.fixture(scope="module")
def run_cases(tmp_path_factory):
    """Return a function that runs cases in one new process and returns what each showed."""
    library = tmp_path_factory.mktemp("fake") / "fake_cuda.so"
    source, libraries = HERE / "fake_cuda.cpp", ["-lc10", "-ltorch_cpu"]
    paths = [f"-I{TORCH / 'include'}", f"-L{TORCH / 'lib'}"]
    words = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", *paths]
    built = subprocess.run(
        [*words, source, "-o", library, *libraries], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr[-2000:]

    def run(cases):
        environment = {"PYTHONPATH": PYTHONPATH, "LD_LIBRARY_PATH": str(TORCH / "lib")}
        finished = subprocess.run(
            [sys.executable, HERE / "fake_cuda_case.py", library, json.dumps(cases)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        assert finished.returncode == 0, finished.stderr[-3000:]
        return json.loads(finished.stdout.splitlines()[-1])

    return run


def check(found, precision, attention):
    """Check what holds for every pass: nothing leaves the device, and each type is the intended."""
    assert found["off_device"] == [] and found["waiting"] == []
    short, _, autocast = precision.partition("_")
    computed = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[short]
    kept = "torch.float32" if autocast else f"torch.{computed}"
    assert found["gradients"]
    assert all(each == [kept, "cuda:0", True] for each in found["gradients"].values())
    # Position terms are fp32 in every precision but autocast, where products choose for themselves.
    assert f"torch.{computed}" in found["products"]
    assert set(found["products"]) <= {f"torch.{computed}", "torch.float32"}
    assert (attention == "triton") == bool(KERNELS & set(found["operators"]))


def test_every_encoding_and_attention_runs_in_every_precision(run_cases):
    """Forward and backward pass of the loss, a block skipped and others scaled, with dropout."""
    cases = [
        {
            "words": ["--model.positions", positions, "--model.dropout", "0.1"]
            + ["--model.attention_dropout", "0" if attention in NO_DROPOUT else "0.1"]
            + ["--model.norm", "post" if number % 2 else "pre"],
            "attention": attention,
            "precision": PRECISIONS[number % len(PRECISIONS)],
        }
        # 5 precisions and 2 norms, in turns: every backend meets all of them with some encoding.
        for number, (positions, attention) in enumerate(BACKENDS)
    ]
    cases += [
        {"words": ["--model.positions", "tupe-r"], "attention": attention, "precision": precision}
        for attention, precision in itertools.product(ATTENTIONS, PRECISIONS)
        if attention != "folded"
    ]
    for given, found in zip(cases, run_cases(cases), strict=True):
        check(found, given["precision"], given["attention"])
        assert found["output"] == ["torch.float32", "cuda:0", []], given
        positions = given["words"][1]
        learns_bias = POSITION_ENCODINGS[positions].has_attention_bias and positions != "alibi"
        if given["attention"] == "triton":
            assert KERNELS - set(found["operators"]) == (
                set() if learns_bias else {"tupelo.attention_bias_gradient.default"}
            )


def test_a_compiled_block_is_one_graph_with_the_kernels_as_nodes(run_cases):
    """Compiled until code would be generated, dropout and the scale of layer drop included."""
    words = ["--model.positions", "tupe-r", "--model.norm", "post", "--model.dropout", "0.1"]
    (found,) = run_cases(
        [{"words": words, "attention": "triton", "precision": "bf16_autocast", "compiled": True}]
    )
    # Forward and backward, of each block by itself: fullgraph refuses anything in between.
    assert len(found["graphs"]) == 2 * case.LAYERS
    forward = [graph for graph in found["graphs"] if "tupelo.attention_forward.default" in graph]
    backward = [graph for graph in found["graphs"] if "tupelo.attention_backward.default" in graph]
    assert len(forward) == len(backward) == case.LAYERS
    assert all("tupelo.attention_bias_gradient.default" in graph for graph in backward)
    for graph in found["graphs"]:
        assert not any(part in name for name in graph for part in case.WAITING)
    assert all(each[0] == "torch.float32" for each in found["gradients"].values())
