"""DeepSpeed, on one rank and on two, against a plain PyTorch loop."""

import json
import math

import pytest
import torch
from deepspeed.accelerator import get_accelerator

from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.errors import ConfigError
from pretrain.distributed.ranks import start_ranks
from pretrain.engine.engine import Engine
from pretrain.engine.launch import check_machine
from pretrain.engine.micro_batches import MicroBatches
from pretrain.engine.parameter_groups import parameter_groups
from tests.forked_command import run_module
from tests.pretrain.engine import training_case as case

FP32 = ["zero0_fp32", "zero1_fp32", "zero2_fp32", "zero3_fp32"]
BF16 = ["zero0_bf16_autocast"]
RATES = ("--optimizer.position_rate=4", "--optimizer.relative_rate=16")


def adamw_by_name(model, settings):
    """Return the update of torch's AdamW, with rate and decay of each parameter by its name."""
    factors = {"position_embeddings": 4.0, "bucket_embeddings": 16.0}
    groups = []
    for name, weight in model.named_parameters():
        factor = factors.get(name.split(".")[-2], 1.0)
        # AdamW subtracts rate x decay x weight: a table with a rate of its own decays as others.
        decay = settings.weight_decay / factor if weight.ndim > 1 else 0.0
        groups.append({"params": [weight], "weight_decay": decay, "factor": factor})
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=settings.betas, eps=settings.epsilon)

    def update(learning_rate):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["factor"]
        optimizer.step()

    return update


@pytest.fixture(scope="module")
def plain():
    settings = case.case_settings(*RATES)
    model = case.build_model(settings)
    return case.reference(settings, model, adamw_by_name(model, settings.optimizer))


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """What the engine did on two ranks under each configuration."""
    return run_case(2, tmp_path_factory.mktemp("ranks"), [*FP32, "zero3_fp32:0", *BF16], *RATES)


def run_case(ranks, folder, names, *words):
    module = "tests.pretrain.engine.training_case"
    status, _, errors = run_module(module, [folder, *names, "--", *words], ranks)
    assert status == 0, errors[-3000:]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.ranks
def test_every_zero_stage_is_the_plain_pytorch_loop(engines, plain):
    """With blocks skipped for whole steps, accumulation, clipping and rates of tables."""
    for name in engines.keys() - {*BF16}:
        found = engines[name]
        # engines: 1e-6 relative, the sums run in another order
        assert found["losses"] == pytest.approx(plain.losses, rel=2e-6), name
        assert found["norms"] == pytest.approx(plain.norms, rel=1e-5), name
        for key, expected in plain.weights.items():
            weight = torch.tensor(found["weights"][key])
            # Adam moves the weights of the smallest gradients as far as the others, 0.01 here,
            # and the rounding of these gradients with them.
            torch.testing.assert_close(weight, expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.ranks
def test_bf16_follows_fp32_within_its_rounding(engines, plain):
    for name in engines.keys() & BF16:
        # bf16 has 8 bits: 0.4 % a number, averaged over the loss
        assert engines[name]["losses"] == pytest.approx(plain.losses, rel=1e-2), name


@pytest.mark.ranks
def test_a_resumed_engine_and_one_that_rewinds_are_the_uninterrupted_one(engines):
    for name, found in engines.items():
        assert found["resumed"] == found["rewound"] == found["losses"][3:], name


def test_biases_and_norms_do_not_decay_unless_everything_does():
    settings = case.case_settings()
    model = case.build_model(settings)
    decayed, undecayed = parameter_groups(model, settings.optimizer)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert decayed["weight_decay"] == 0.1 and undecayed["weight_decay"] == 0.0
    for parameter in undecayed["params"]:
        assert names[id(parameter)].endswith("bias") or "norm" in names[id(parameter)]
    for parameter in decayed["params"]:
        assert names[id(parameter)].endswith("weight") and "norm" not in names[id(parameter)]
    everything = case.case_settings("--optimizer.decay_everything", "true").optimizer
    (single,) = parameter_groups(model, everything)
    assert len(single["params"]) == len(names) and single["weight_decay"] == 0.1


@pytest.mark.parametrize(
    ("kind", "device", "message"),
    [
        ("deepspeed", "cpu", "needs a CUDA device.*use torch"),
        ("apex", "cpu", "needs a CUDA device.*use torch"),
        ("apex", "cuda", "No module named 'apex'; use --optimizer.kind torch"),
    ],
)
def test_fused_adam_is_refused_on_a_cpu_and_where_it_is_not_installed(kind, device, message):
    settings = case.case_settings("--optimizer.kind", kind)
    with pytest.raises(ConfigError, match=f"optimizer.kind='{kind}'.*{message}"):
        check_machine(settings, {}, device)


def test_an_fp16_overflow_skips_the_step_and_halves_the_scale_which_a_resume_keeps(
    monkeypatch, tmp_path
):
    ranks, settings = start_ranks(), case.case_settings()
    # Slow on a CPU, but the same code path.
    monkeypatch.setattr(get_accelerator(), "is_fp16_supported", lambda: True)
    config = read_ds_config("zero1_fp16", "cpu")
    config["fp16"]["initial_scale_power"] = 24
    config = fill_ds_config(config, settings, world_size=1)
    engine = Engine(case.build_model(settings), settings, config, ranks, MicroBatches(2, 4))
    found = []
    for step in range(9):
        batches = [(case.micro_batch(step, place), [1.0] * 3) for place in range(4)]
        result = engine.train_step(batches, 0.01)
        found.append([result.skipped, result.loss_scale, float(result.gradient_norm)])
    skipped = [step for step, _, _ in found]
    assert found[0][1] in (2.0**24, 2.0**23)  # the JSON may forgive a first overflow
    assert skipped[0] and not skipped[-1]  # 2^24 is too large for these gradients, and ends
    for (_, before, _), (was_skipped, after, _) in zip(found, found[1:], strict=False):
        assert after == (before / 2 if was_skipped else before)
    assert all((norm == math.inf) == was_skipped for was_skipped, _, norm in found)
    again = Engine(case.build_model(settings), settings, config, ranks, MicroBatches(2, 4))
    assert again.loss_scale() == 2.0**24
    again.restore(case.saved(engine, tmp_path, 9))
    assert again.loss_scale() == engine.loss_scale() == found[-1][1]
    assert again.snapshot().counters == engine.snapshot().counters
    assert vars(again._optimizer.loss_scaler) == vars(engine._optimizer.loss_scaler)


@pytest.mark.parametrize("name", ["zero1_fp16", "zero3_fp16"])
def test_the_step_at_which_the_loss_scale_grows_is_as_large_as_any(monkeypatch, name):
    monkeypatch.setattr(get_accelerator(), "is_fp16_supported", lambda: True)
    ranks, found = start_ranks(), []
    settings = case.case_settings("--optimizer.max_gradient_norm", "100")
    for window in (2, 1000):
        config = read_ds_config(name, "cpu")
        config["fp16"] |= {"initial_scale_power": 12, "loss_scale_window": window}
        engine = case.build_engine(settings, ranks, config)
        found += case.train_steps(engine, settings, range(6))
        assert engine.loss_scale() == 2.0**12 * (4 if window == 2 else 1)
    assert found[:2] == [pytest.approx(each, rel=1e-3) for each in found[2:]]  # losses, norms
