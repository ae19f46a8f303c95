"""What only an NVIDIA GPU can show (-m gpu): fp16, fused Adams, kernels, clocks by events."""

import json
import shutil
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
import torch

from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.recipe import load_settings
from pretrain.distributed.ranks import Ranks
from pretrain.engine import micro_batches
from pretrain.engine.micro_batches import choose_micro_batches, pass_fits
from pretrain.engine.zero_choice import with_fitted_buckets
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.kernel_check import disagreement_with_eager
from pretrain.model.kernels.cross_entropy import linear_cross_entropy
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from tests.forked_command import environment
from tests.pretrain.commands.test_profile import profiled
from tests.pretrain.engine import training_case as case
from tests.pretrain.model import attention_reference as reference

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.gpu


def train_on_gpu(folder, names, *words):
    """Run the training case on the GPU and return what happened under each configuration."""
    finished = subprocess.run(
        [sys.executable, str(ROOT / "tests/pretrain/engine/training_case.py"), str(folder), *names]
        + ["--", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def plain():
    return case.reference(case.case_settings())


def test_every_precision_and_stage_follows_the_fp32_loop(tmp_path, plain):
    names = ["zero1_fp32", "zero1_fp16", "zero2_fp16", "zero3_fp16", "zero1_bf16_autocast"]
    found = train_on_gpu(tmp_path, names, "--optimizer.kind", "torch")
    for name in names:
        # fp16 and bf16: 1e-2; fp32 products may use TF32
        assert found[name]["losses"] == pytest.approx(plain.losses, rel=1e-2), name
        assert found[name]["resumed"] == pytest.approx(found[name]["losses"][3:], rel=1e-3)


@pytest.mark.parametrize("kind", ["deepspeed", "apex"])
def test_a_fused_adam_is_torchs_adamw(tmp_path, plain, kind):
    if not (shutil.which("nvcc") if kind == "deepspeed" else find_spec("apex")):
        pytest.skip("the one is compiled with nvcc, the other is installed by hand")
    found = train_on_gpu(tmp_path, ["zero1_fp32"], "--optimizer.kind", kind)["zero1_fp32"]
    assert found["losses"] == pytest.approx(plain.losses, rel=1e-3)
    for key, expected in plain.weights.items():
        weight = torch.tensor(found["weights"][key])
        torch.testing.assert_close(weight, expected.detach(), rtol=1e-2, atol=1e-3)


def test_a_profile_lists_kernels(command, tmp_path):
    output = profiled(command, tmp_path, "--optimizer.kind", "torch")
    assert "Self CUDA" in output


NO_SYNCHRONISATION = """
import torch
from pretrain.distributed.ranks import start_ranks
from tests.pretrain.engine import training_case as case
ranks = start_ranks()
settings = case.case_settings()
engine = case.build_engine(settings, ranks, "zero0_bf16_autocast")
def refuse(*arguments):
    raise RuntimeError("waits for the device")
def steps(numbers):
    for step in numbers:
        batches = [
            (case.MaskedBatch(*(tensor.pin_memory() for tensor in batch)), scales)
            for batch, scales in case.micro_batches_of(settings, step, range(4), 1)
        ]
        engine.train_step(batches, 1e-3)
steps(range(3))
torch.cuda.set_sync_debug_mode("error")
# This mode does not see them.
torch.cuda.synchronize = torch.cuda.Stream.synchronize = torch.cuda.Event.synchronize = refuse
steps(range(3, 6))
"""


def test_a_step_never_waits_for_the_device():
    """Skipped blocks and new scales included; PyTorch raises at the place that waits."""
    finished = subprocess.run(
        [sys.executable, "-c", NO_SYNCHRONISATION], cwd=ROOT, capture_output=True, env=environment()
    )
    assert finished.returncode == 0, finished.stderr.decode()[-3000:]


@pytest.mark.parametrize("length", [64, 128, 192, 512])
@pytest.mark.parametrize(
    ("attention", "positions"), list(product(("eager", "sdpa", "triton"), ("bert-a", "tupe-a")))
)
def test_every_attention_agrees_with_the_reference(attention, positions, length):
    """192 and 64 leave half a tile, where some kernels have given NaN."""
    words = ["--model.width", "256", "--model.num_heads", "4", "--model.positions", positions]
    settings = load_settings("tiny_cpu", [*words, "--model.max_sequence_length", "512"]).model
    for dtype in (torch.bfloat16, torch.float16):
        found = disagreement_with_eager(
            attention, settings, length=length, device="cuda", dtype=dtype
        )
        assert found is None, (dtype, found)


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "triton"])
def test_attention_agrees_with_the_reference_and_runs_with_dropout(attention, compiles):
    words = ["--model.width", "256", "--model.num_heads", "4", "--model.positions", "tupe-r"]
    words += ["--model.max_sequence_length", "512", "--model.attention_dropout", "0.1"]
    settings = load_settings("tiny_cpu", words).model
    found = disagreement_with_eager(
        attention,
        settings,
        length=512,
        device="cuda",
        dtype=torch.bfloat16,
        autocasts=True,
        compiles=compiles,
    )
    assert found is None


def test_compiled_blocks_learn_what_plain_ones_learn(tmp_path):
    losses = {}
    for choice in ("off", "on"):
        (tmp_path / choice).mkdir()
        words = ("--optimizer.kind", "torch", "--engine.compile_blocks", choice)
        found = train_on_gpu(tmp_path / choice, ["zero1_fp32"], *words)
        losses[choice] = found["zero1_fp32"]["losses"]
    assert losses["on"] == pytest.approx(losses["off"], rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_compiled_loss_is_that_of_torchs_operations(dtype):
    generator = torch.Generator().manual_seed(0)
    leaves = [
        torch.randn(1232, 768, generator=generator).to("cuda", dtype),
        (torch.randn(30_528, 768, generator=generator) * 0.02).cuda(),
        torch.zeros(30_528, device="cuda"),
    ]
    labels = torch.randint(30_528, (1232,), generator=generator).cuda()
    results = {}
    for method in ("sliced", "compiled"):
        inputs = [leaf.clone().requires_grad_() for leaf in leaves]
        loss = linear_cross_entropy(*inputs, labels, ignored=-100, method=method)
        results[method] = [loss.detach(), *torch.autograd.grad(loss, inputs)]
    for plain, compiled in zip(*results.values(), strict=True):
        # bf16 keeps 8 bits of a gradient
        assert float((compiled.float() - plain.float()).norm() / plain.float().norm()) < 1e-2


attention_example = partial(
    reference.example, batch=4, heads=3, head_width=64, dtype=torch.bfloat16
)


def check_attention(qkv, bias, lengths, d_o):
    from pretrain.model.kernels.triton_attention import triton_attention

    arguments = (qkv, bias, lengths, 0.1, d_o)
    found = reference.with_gradients(triton_attention, *arguments)
    reference.assert_close(found, reference.exact(*arguments), reference.BOUNDS[qkv.dtype])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("head_width", [16, 32, 64, 128])
@pytest.mark.parametrize("length", [1, 100, 192, 512])
def test_the_compiled_attention_kernels_follow_the_formula(length, head_width, dtype):
    qkv, bias, d_o = attention_example(length, head_width=head_width, dtype=dtype)
    check_attention(qkv, bias, None, d_o)


@pytest.mark.parametrize("length", [100, 192, 512])
def test_the_compiled_attention_kernels_do_not_see_padding(length):
    qkv, bias, d_o = attention_example(length)
    lengths = torch.tensor([length, 1, 70, length // 2], dtype=torch.int32, device="cuda")
    check_attention(qkv, bias, lengths, d_o)
    check_attention(qkv, None, lengths, d_o)


def test_the_chosen_micro_batch_fits_and_twice_as_many_rows_do_not(monkeypatch):
    """Of the sizes 1, 2, 4, ... in a process that may take 12 GiB: others share the GPU."""
    words = ["--model.width", "768", "--model.num_heads", "12", "--model.num_layers", "12"]
    words += ["--data.sequence_length", "512", "--model.max_sequence_length", "512"]
    words += ["--batch.global_sequences", "128", "--batch.micro_sequences", "auto"]
    settings = load_settings("tiny_cpu", [*words, "--model.dropout", "0.1"])
    config = fill_ds_config(read_ds_config("zero1_fp16", "cuda"), settings, world_size=1)
    config = with_fitted_buckets(config, settings)
    model, ranks = MaskedLanguageModel(settings.model, ExecutionPlan("sdpa")), Ranks(0, 1, "cuda")
    run, memory = (model, settings, config, ranks), 12 * 2**30
    monkeypatch.setattr(micro_batches, "free_bytes", lambda ranks: memory)
    assert pass_fits(1, *run)  # and cuBLAS has its workspaces, which it keeps
    before = torch.cuda.memory_allocated()
    torch.cuda.set_per_process_memory_fraction(memory / torch.cuda.mem_get_info()[1])
    try:
        chosen = choose_micro_batches(*run[1:], model.execution, model=model).sequences
        assert 1 < chosen < 128 and pass_fits(chosen, *run) and not pass_fits(2 * chosen, *run)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.memory_allocated() == before
