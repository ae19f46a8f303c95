"""Optimizers: one that is added, refusals, and what is stored."""

import math

import pytest
import torch
from deepspeed.accelerator import get_accelerator

from pretrain.checkpoint.format import CheckpointError
from pretrain.config.errors import ConfigError
from pretrain.distributed.ranks import start_ranks
from pretrain.engine import optimizers
from pretrain.engine.footprint import checkpoint_bytes
from pretrain.engine.launch import check_machine, checked_ds_config
from pretrain.engine.optimizers import OPTIMIZERS, checked_optimizer
from pretrain.engine.parameter_groups import check_table_rates
from tests.docs.contributed import BLOCKS
from tests.pretrain.engine import training_case as case
from tests.pretrain.engine.test_engine import RATES
from tests.selection import mostly_slow


def test_a_rate_of_a_table_that_is_not_there_is_refused():
    for positions, rate in (("bert-a", "relative"), ("alibi", "relative"), ("shaw", "position")):
        words = ("--model.positions", positions, f"--optimizer.{rate}_rate", "2")
        message = f"{rate}_rate=2 .*'{positions}', which has no such table"
        with pytest.raises(ConfigError, match=message):
            check_table_rates(case.case_settings(*words))
    check_table_rates(case.case_settings("--model.positions", "bert-r", *RATES))


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
    before, checkpoint = engine.snapshot(), case.saved(engine, tmp_path, 3)
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
    OPTIMIZERS["rmsprop"].state = ()  # of this test alone
    with pytest.raises(ConfigError, match="holds nothing of this optimizer, which keeps square_"):
        engine.snapshot()


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


@pytest.mark.parametrize("name", mostly_slow(["zero1_fp16", "zero3_fp16"], "fp16 on a CPU"))
def test_an_optimizer_that_is_added_works_in_half_precision(
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
    assert found["losses"] == pytest.approx(losses, rel=1e-2)  # of 11 bits
    assert found["resumed"] == found["losses"][3:]
