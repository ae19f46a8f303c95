"""What only an NVIDIA GPU can show: fp16 with loss scaling, and the fused Adams. Run: -m gpu."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from . import training_case as case

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.gpu


def train_on_gpu(folder, names, *words):
    """Run the training case on the GPU and return what happened under each configuration."""
    finished = subprocess.run(
        [sys.executable, str(ROOT / "tests/pretrain/training_case.py"), str(folder), *names]
        + ["--", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def plain():
    return case.plain_loop(case.case_settings())


def test_every_precision_and_stage_follows_the_fp32_loop(tmp_path, plain):
    names = ["zero1_fp32", "zero1_fp16", "zero2_fp16", "zero3_fp16", "zero1_bf16_autocast"]
    found = train_on_gpu(tmp_path, names, "--optimizer.kind", "torch")
    for name in names:
        # fp16 and bf16: 1e-2; fp32 products may use TF32
        assert found[name]["losses"] == pytest.approx(plain["losses"], rel=1e-2), name
        assert found[name]["resumed"] == pytest.approx(found[name]["losses"][3:], rel=1e-3)


@pytest.mark.parametrize("kind", ["deepspeed", "apex"])
def test_a_fused_adam_is_torchs_adamw(tmp_path, plain, kind):
    if kind == "apex" and importlib.util.find_spec("apex") is None:
        pytest.skip("NVIDIA apex is not installed")
    found = train_on_gpu(tmp_path, ["zero1_fp32"], "--optimizer.kind", kind)["zero1_fp32"]
    assert found["losses"] == pytest.approx(plain["losses"], rel=1e-3)
    for key, expected in plain["weights"].items():
        weight = torch.tensor(found["weights"][key])
        torch.testing.assert_close(weight, expected.detach(), rtol=1e-2, atol=1e-3)
