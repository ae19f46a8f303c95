"""Optimizers: rates of their own for tables, one that is added, refusals, and what is stored."""

import math

import numpy
import pytest
import torch
from deepspeed.accelerator import get_accelerator

from pretrain.checkpoint.folders import checkpoint_folder
from pretrain.checkpoint.format import Checkpoint, CheckpointError
from pretrain.checkpoint.writer import Saver
from pretrain.config.ds_config import DS_CONFIGS
from pretrain.config.errors import ConfigError
from pretrain.config.settings import CheckpointSettings
from pretrain.distributed.ranks import start_ranks
from pretrain.engine import optimizers
from pretrain.engine.footprint import checkpoint_bytes
from pretrain.engine.launch import check_machine, checked_ds_config
from pretrain.engine.optimizers import (
    OPTIMIZERS,
    checked_optimizer,
)
from pretrain.engine.parameter_groups import check_table_rates
from pretrain.model.encoder import build_position_encoding
from tests.docs.contributed import BLOCKS
from tests.pretrain.engine import training_case as case
from tests.pretrain.engine.test_engine import run_case
from tests.selection import mostly_slow


def distance(found, expected, start):
    """Return how far two weights are apart, relative to the way from the start."""
    return numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected - start)


def arrays(model):
    return {name: weight.detach().double().numpy() for name, weight in model.named_parameters()}


RATES = {f"{kind}_rate": f"--optimizer.{kind}_rate={rate}"
         for kind, rate in (("position", 4), ("relative", 16))}  # fmt: skip
OTHERS = ("shaw", "tupe-a-table", "alibi")


def adamw_with_table_rates(model, settings):
    """Return AdamW's formula with a learning rate for each parameter by its name (fp64)."""
    factors = {"position_embeddings": 4.0, "bucket_embeddings": 16.0}
    weights, moments, steps = arrays(model), {}, 0
    beta_1, beta_2 = settings.betas

    def update(learning_rate):
        nonlocal steps
        steps += 1
        for name, parameter in model.named_parameters():
            gradient, weight = parameter.grad.double().numpy(), weights[name]
            first, second = moments.get(name, (0.0, 0.0))
            first = beta_1 * first + (1 - beta_1) * gradient
            second = beta_2 * second + (1 - beta_2) * gradient**2
            moments[name] = first, second
            root = numpy.sqrt(second / (1 - beta_2**steps)) + settings.epsilon
            rate = learning_rate * factors.get(name.split(".")[-2], 1.0)
            decay = settings.weight_decay if weight.ndim > 1 else 0.0
            weights[name] = weight - learning_rate * decay * weight
            weights[name] -= rate * first / (1 - beta_1**steps) / root
            parameter.data.copy_(torch.from_numpy(weights[name]))

    return update


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("positions", "ranks"),
    [
        ("tupe-r", 2),
        *mostly_slow([("tupe-r", 1), *((name, 1) for name in OTHERS)], "further encodings"),
    ],
)
def test_tables_of_positions_learn_at_their_own_rate_at_every_stage(ranks, positions, tmp_path):
    """And the rest, and the decay of all, as before; also after a resume.

    Relative keys belong to layers that are dropped for whole steps.
    """
    model = build_position_encoding(case.case_settings("--model.positions", positions).model)
    words = ("--model.positions", positions, *(RATES[name] for name in model.tables()))
    settings = case.case_settings(*words)
    model = case.build_model(settings)
    start = arrays(model)
    plain = case.reference(settings, model, adamw_with_table_rates(model, settings.optimizer))
    stages = [f"zero{stage}_fp32" for stage in range(4)]
    found = run_case(ranks, tmp_path, stages, *words)
    for name in stages:
        assert found[name]["losses"] == pytest.approx(plain.losses, rel=1e-5), name
        assert found[name]["resumed"] == found[name]["losses"][3:], name
        for key, weight in found[name]["weights"].items():
            if key.endswith("embeddings.weight"):  # without a gradient that is only rounding
                here = numpy.array(weight)
                assert distance(here, plain.weights[key].double().numpy(), start[key]) < 1e-2


def test_a_rate_of_a_table_that_is_not_there_is_refused():
    for positions, rate in (("bert-a", "relative"), ("alibi", "relative"), ("shaw", "position")):
        words = ("--model.positions", positions, f"--optimizer.{rate}_rate", "2")
        message = f"{rate}_rate=2 .*'{positions}', which has no such table"
        with pytest.raises(ConfigError, match=message):
            check_table_rates(case.case_settings(*words))
    check_table_rates(case.case_settings("--model.positions", "bert-r", *RATES.values()))


@pytest.fixture
def ranks():
    # Not stopped: DeepSpeed remembers the group as long as the process lives.
    return start_ranks()


@pytest.fixture
def rmsprop(monkeypatch):
    """The optimizer that CONTRIBUTING.md adds; it keeps another state than AdamW."""
    monkeypatch.setitem(OPTIMIZERS, "rmsprop", None)  # and remove it afterwards
    exec(BLOCKS["pretrain/engine/optimizers"], dict(vars(optimizers)))
    return "--optimizer.kind", "rmsprop"


def test_a_checkpoint_restores_the_state_of_its_optimizer_and_no_other(ranks, rmsprop, tmp_path):
    settings = case.case_settings(*rmsprop)
    engine = case.build_engine(settings, ranks, "zero0_fp32")
    case.train_steps(engine, settings, range(3))
    before = engine.snapshot()
    saver = Saver(tmp_path, CheckpointSettings(), ranks)
    saver.save(3, before, {})
    saver.wait()
    checkpoint = Checkpoint(checkpoint_folder(tmp_path, 3))
    assert {*map(tuple, checkpoint.content.optimizer_state.values())} == {("square_avg",)}
    engine.restore(checkpoint)  # over a state that exists
    after = engine.snapshot()
    assert after.counters == before.counters
    assert all(torch.equal(t, before.tensors[key]) for key, t in after.tensors.items())
    numbers = sum(tensor.numel() for tensor in before.tensors.values())
    assert checkpoint_bytes(settings) == 4 * numbers
    adamw = case.build_engine(case.case_settings(), ranks, "zero0_fp32")
    refusal = "it holds square_avg, and this run's optimizer keeps exp_avg and exp_avg_sq"
    with pytest.raises(CheckpointError, match=refusal):
        adamw.restore(checkpoint)


def test_an_update_with_a_gradient_that_is_not_finite_is_left_out(ranks):
    settings = case.case_settings()
    engine = case.build_engine(settings, ranks, "zero0_fp32")
    case.train_steps(engine, settings, range(2))
    assert engine.refuses_not_finite_updates
    before = engine.snapshot()
    bias = dict(engine._module.named_parameters())["head.output_bias"]
    hook = bias.register_hook(lambda gradient: gradient * math.inf)
    case.train_steps(engine, settings, [2])
    hook.remove()
    after = engine.snapshot()
    assert after.counters == before.counters
    assert all(torch.equal(t, before.tensors[key]) for key, t in after.tensors.items())
    case.train_steps(engine, settings, [3])
    moved = engine.snapshot()
    assert moved.counters.adam_steps == 3 and engine.weights.are_finite()
    assert not any(torch.equal(t, before.tensors[key]) for key, t in moved.tensors.items())


def test_what_an_optimizer_cannot_do_is_refused(rmsprop, monkeypatch):
    settings = case.case_settings(*rmsprop).optimizer
    config = {"optimizer": {"type": "AdamW"}}
    with pytest.raises(ConfigError, match="JSON has a block optimizer.*'rmsprop'; remove the blo"):
        checked_optimizer(settings, "cpu", config)
    checked_optimizer(case.case_settings().optimizer, "cpu", config)
    uncorrected = settings.model_copy(update={"bias_correction": False})
    with pytest.raises(ConfigError, match="bias_correction=False is not available with .*'rmsprop"):
        checked_optimizer(uncorrected, "cpu", {})
    monkeypatch.setattr(type(OPTIMIZERS["rmsprop"]), "zero_stages", (0,))
    with pytest.raises(ConfigError, match="'rmsprop' does not work at ZeRO stage 2"):
        checked_optimizer(settings, "cpu", {"zero_optimization": {"stage": 2}})
    unknown = settings.model_copy(update={"kind": "torhc"})
    with pytest.raises(ConfigError, match="kind='torhc' does not exist; did you mean torch"):
        checked_optimizer(unknown, "cpu", {})


def test_a_start_builds_the_optimizer_of_its_own_model(rmsprop, monkeypatch):
    """One that looks for the blocks would find none in another."""
    settings, shapes = case.case_settings(*rmsprop), {}

    def build(_, model, settings):
        shapes.update((name, weight.shape) for name, weight in model.named_parameters())

    monkeypatch.setattr(type(OPTIMIZERS["rmsprop"]), "build", build)
    check_machine(settings, {}, "cpu")
    expected = case.build_model(settings).named_parameters()
    assert shapes == {name: weight.shape for name, weight in expected}


SHIPPED = sorted((file.stem for file in DS_CONFIGS.glob("*.json")), key="zero1_fp16".__ne__)


@pytest.mark.parametrize("name", mostly_slow(SHIPPED, "further DeepSpeed configurations"))
def test_an_optimizer_that_is_added_works_with_every_shipped_json(
    name, ranks, rmsprop, tmp_path, monkeypatch
):
    monkeypatch.setattr(get_accelerator(), "is_fp16_supported", lambda: True)  # slow on a CPU
    # Its first steps are ten times the rate, whatever the gradients: half precision turns signs.
    settings = case.case_settings(
        *rmsprop, "--learning_rate.peak", "0.001", "--engine.ds_config", name
    )
    checked_ds_config(settings, ranks)
    model = case.build_model(settings)
    plain = OPTIMIZERS["rmsprop"].build(model, settings.optimizer)

    def update(rate):
        for group in plain.param_groups:
            group["lr"] = rate
        plain.step()

    losses, _, _ = case.reference(settings, model, update)
    found = case.whole_and_resumed(settings, ranks, name, tmp_path)
    # Sums in another order; 8 or 11 bits in half precision.
    assert found["losses"] == pytest.approx(losses, rel=1e-5 if "fp32" in name else 1e-2)
    assert found["resumed"] == found["losses"][3:]
