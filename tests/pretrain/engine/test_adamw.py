"""The implementations of AdamW: which one is chosen, what it needs to be built, what they share."""

import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import torch
from deepspeed.accelerator import get_accelerator

from pretrain.checkpoint.folders import checkpoint_folder
from pretrain.checkpoint.format import Checkpoint
from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.distributed import deepspeed_library
from pretrain.distributed.ranks import start_ranks
from pretrain.engine import launch
from pretrain.engine.launch import check_machine
from pretrain.engine.optimizer_state import inner_optimizer, num_updates
from pretrain.engine.optimizers import OPTIMIZERS, FusedAdamW, checked_optimizer
from pretrain.engine.parameter_groups import parameter_groups
from pretrain.schedules.layer_drop import scales_of_step
from tests.forked_command import run_module
from tests.pretrain.engine import training_case as case


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_auto_is_torchs_fused_adamw_whose_update_can_be_left_out(device):
    settings = case.case_settings()
    assert settings.optimizer.kind == "auto"
    kind = checked_optimizer(settings.optimizer, device, {})
    assert kind is OPTIMIZERS["torch"] and kind.takes_gradient_scale
    optimizer = kind.build(case.build_model(settings), settings.optimizer)
    assert type(optimizer) is torch.optim.AdamW and optimizer.defaults["fused"]


@pytest.mark.skipif(not shutil.which("g++"), reason="a compiler shows it")
def test_compilers_find_in_packages_of_pip_what_the_toolkit_lacks(tmp_path, monkeypatch):
    cuda, program = tmp_path / "nvidia/cu13", tmp_path / "program.cpp"
    found = SimpleNamespace(submodule_search_locations=[str(cuda.parent)])
    monkeypatch.setattr(deepspeed_library, "find_spec", lambda _: found)
    (cuda / "include").mkdir(parents=True)
    (cuda / "lib").mkdir()
    (cuda / "include/cusparse.h").write_text("int version();")
    program.write_text("#include <cusparse.h>\nint main() { return version(); }")
    (tmp_path / "library.cpp").write_text("int version() { return 13; }")
    shared = ["g++", "-shared", tmp_path / "library.cpp", "-o", cuda / "lib/libcudart.so.13"]
    subprocess.run(shared, check=True)
    monkeypatch.setenv("PATH", os.defpath)
    before, build = dict(os.environ), ["g++", program, "-o", tmp_path / "program", "-lcudart"]
    assert subprocess.run(build, stderr=subprocess.DEVNULL).returncode != 0
    with deepspeed_library.with_cuda_of_pip():
        subprocess.run(build, check=True)
        assert shutil.which("ninja")
    assert os.environ == before


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("CUDA_HOME environment variable is not set"), 0),
        (RuntimeError("Error building extension\n[1/3] nvcc -Werror\nadam.cu: error: no\n"), 2),
        (RuntimeError("Error building extension\nld: cannot find -lcudart: No such file"), 1),
        (RuntimeError("Error building extension\nsh: 1: c++: not found\nninja: stopped"), 1),
        (ImportError("fused_adam.so: undefined symbol"), 0),
    ],
)
def test_a_build_that_fails_is_one_line_with_the_way_out(monkeypatch, error, line):
    deepspeed_library.import_deepspeed()
    from deepspeed.ops.adam import fused_adam

    def load(_):
        raise error

    monkeypatch.setattr(fused_adam.FusedAdamBuilder, "load", load)
    settings = case.case_settings("--optimizer.kind", "deepspeed")
    with pytest.raises(ConfigError) as refused:
        check_machine(settings, {}, "cuda")
    message = str(refused.value)
    assert message.startswith("optimizer.kind='deepspeed' cannot be built here: ")
    assert f"{type(error).__name__}: {str(error).splitlines()[line]}; use --optimizer" in message
    assert len(message.splitlines()) == 1


def train_a_recipe_of_the_papers():
    """Train in fp16, and check that no compiler was started."""
    started, start = [], subprocess.Popen.__init__

    def record(self, program, *arguments, **options):
        started.append(program if isinstance(program, str) else program[0])
        return start(self, program, *arguments, **options)

    subprocess.Popen.__init__ = record
    ranks = start_ranks()
    get_accelerator().is_fp16_supported = lambda: True  # slow on a CPU, but the same code path
    small = (
        "--model.num_layers 3 --model.width 32 --model.num_heads 2 "
        "--model.feedforward_width 64 --model.vocabulary_size 64 --data.sequence_length 16 "
        "--batch.global_sequences 8 --batch.micro_sequences 2 --engine.cpu_kernels off"
    )
    settings = load_settings("pld_base", small.split())
    assert settings.optimizer.kind == "auto" and settings.engine.ds_config == "zero1_fp16"
    config = fill_ds_config(read_ds_config("zero1_fp16", "cuda"), settings, world_size=1)
    assert config["fp16"]["loss_scale"] == 0  # dynamic
    engine = launch.build_engine(settings, config, ranks)
    inner = inner_optimizer(engine._optimizer)
    assert type(inner) is torch.optim.AdamW and inner.defaults["fused"]
    skipped = []
    for step in range(4):
        scales = scales_of_step(step, settings, theta=settings.layer_drop.theta_bar, count=4)
        batches = [(case.micro_batch(step, place), scales[place]) for place in range(4)]
        skipped.append(engine.train_step(batches, 1e-4).skipped)
    assert not skipped[-1] and engine.weights.are_finite(), skipped
    assert engine.snapshot().counters.adam_steps == skipped.count(False)
    compilers = {"nvcc", "ninja", "g++", "c++", "gcc", "cc", "clang", "ld"}
    assert not any(os.path.basename(name) in compilers for name in started), started


def test_a_recipe_of_the_papers_trains_in_fp16_on_a_machine_without_compilers(tmp_path):
    """No compiler is looked for, and none would be found."""
    nothing = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    status, output, errors = run_module("tests.pretrain.engine.test_adamw", **nothing)
    assert status == 0, errors[-3000:]
    assert "WARNING" not in output


def multi_tensor_adam(chunk, no_op, lists, rate, beta_1, beta_2, epsilon, step, mode, *options):
    """Compute what DeepSpeed's compiled kernel does: AdamW's formulas, in place."""
    bias_correction, weight_decay = options
    assert mode == 1
    for gradient, weight, first, second in zip(*lists, strict=True):
        first.lerp_(gradient, 1 - beta_1)
        second.mul_(beta_2).addcmul_(gradient, gradient, value=1 - beta_2)
        divisors = (1 - beta_1**step, 1 - beta_2**step) if bias_correction else (1, 1)
        unbiased = first / divisors[0]
        size = (second / divisors[1]).sqrt() + epsilon
        weight.sub_(rate * (unbiased / size + weight_decay * weight))


@pytest.fixture
def fused_adam_on_a_cpu(monkeypatch):
    """DeepSpeed's FusedAdam with its kernel in Python."""
    deepspeed_library.import_deepspeed()
    from deepspeed.ops.adam import fused_adam

    kernel = SimpleNamespace(multi_tensor_adam=multi_tensor_adam)
    monkeypatch.setattr(fused_adam.FusedAdamBuilder, "load", lambda _: kernel)
    monkeypatch.setattr(FusedAdamW, "obstacle", lambda *_: None)


@pytest.mark.parametrize(
    ("first", "second", "stage"), [("deepspeed", "torch", 0), ("torch", "deepspeed", 1)]
)
def test_a_run_continues_with_another_implementation_of_adamw(
    fused_adam_on_a_cpu, first, second, stage, tmp_path
):
    """Counts of updates included: the bias correction of a wrong one is far off in step 4."""
    ranks, name = start_ranks(), f"zero{stage}_fp32"
    settings = {kind: case.case_settings("--optimizer.kind", kind) for kind in (first, second)}
    plain = case.reference(settings[first])
    before = case.build_engine(settings[first], ranks, name)
    losses, _ = case.train_steps(before, settings[first], range(3))
    checkpoint = case.saved(before, tmp_path, 3)
    after = case.build_engine(settings[second], ranks, name)
    after.restore(checkpoint)
    assert after.snapshot().counters == before.snapshot().counters
    later, _ = case.train_steps(after, settings[second], range(3, case.STEPS))
    assert losses + later == pytest.approx(plain.losses, rel=2e-6)  # as engines among themselves
    assert after.snapshot().counters.adam_steps == case.STEPS


@pytest.mark.parametrize(("kind", "stage"), [("torch", 3), ("deepspeed", 1)])
def test_adamw_without_bias_correction_is_its_formula_also_when_it_resumes(
    fused_adam_on_a_cpu, kind, stage, tmp_path
):
    """The first steps are up to 3 times as long; in step 4 a wrong count would show."""
    ranks, name = start_ranks(), f"zero{stage}_fp32"
    words = ("--optimizer.bias_correction", "false", "--optimizer.epsilon", "1e-4")
    settings = case.case_settings("--optimizer.kind", kind, *words)
    model = case.build_model(settings)
    plain = case.reference(settings, model, uncorrected_adamw(model, settings.optimizer))
    corrected = case.reference(case.case_settings(*words[2:]))
    assert abs(plain.losses[-1] - corrected.losses[-1]) > 1e-3
    found = case.whole_and_resumed(settings, ranks, name, tmp_path)
    assert found["losses"] == pytest.approx(plain.losses, rel=2e-6)  # as engines among themselves
    assert found["resumed"] == found["losses"][3:]
    weights = {key: torch.tensor(weight) for key, weight in found["weights"].items()}
    torch.testing.assert_close(weights, plain.weights, rtol=1e-5, atol=1e-6)
    last = Checkpoint(checkpoint_folder(tmp_path, case.STEPS))
    assert last.content.engine.adam_steps == case.STEPS


def uncorrected_adamw(model, settings):
    """Return the update m / (sqrt(v) + epsilon) with decoupled decay, in float64."""
    (beta_1, beta_2), moments = settings.betas, {}

    @torch.no_grad()
    def update(rate):
        for group in parameter_groups(model, settings):
            for weight in group["params"]:
                gradient = weight.grad.double()
                first, second = moments.get(weight, (0, 0))
                first = beta_1 * first + (1 - beta_1) * gradient
                second = beta_2 * second + (1 - beta_2) * gradient**2
                moments[weight] = first, second
                kept = weight.double() * (1 - rate * group["weight_decay"])
                weight.copy_(kept - rate * first / (second.sqrt() + settings.epsilon))

    return update


def test_an_update_that_is_left_out_does_not_count_without_bias_correction():
    settings = case.case_settings("--optimizer.bias_correction", "false")
    optimizer = OPTIMIZERS["torch"].build(case.build_model(settings), settings.optimizer)
    weight = optimizer.param_groups[0]["params"][0]
    weight.grad = torch.ones_like(weight)
    optimizer.grad_scale = torch.ones(())
    for left_out, updates in ((0.0, 1), (1.0, 1), (0.0, 2)):
        optimizer.found_inf = torch.tensor(left_out)
        optimizer.step()
        assert num_updates(optimizer) == updates


if __name__ == "__main__":
    train_a_recipe_of_the_papers()
