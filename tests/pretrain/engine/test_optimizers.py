"""Optimizers: Muon against its formula and a plain loop, refusals, and what is stored of each."""

import math

import numpy
import pytest
import torch
from deepspeed.accelerator import get_accelerator

from pretrain.checkpoint.folders import checkpoint_folder
from pretrain.checkpoint.format import Checkpoint, CheckpointError
from pretrain.checkpoint.writer import Saver
from pretrain.config.ds_config import DS_CONFIGS, read_ds_config
from pretrain.config.errors import ConfigError
from pretrain.config.settings import CheckpointSettings
from pretrain.distributed.ranks import start_ranks
from pretrain.engine import optimizers
from pretrain.engine.launch import checked_ds_config
from pretrain.engine.optimizers import (
    OPTIMIZERS,
    build_optimizer,
    checked_optimizer,
    state_numbers,
)
from pretrain.engine.parameter_groups import check_table_rates
from pretrain.model.encoder import build_position_encoding
from tests.docs.contributed import BLOCKS
from tests.pretrain.engine import training_case as case
from tests.pretrain.engine.test_engine import run_case
from tests.selection import mostly_slow

MUON = ("--optimizer.kind", "muon", "--model.positions", "tupe-r", "--model.norm", "pre")
OF_BLOCK = {
    "attention.query_key_value.weight",
    "attention.output.weight",
    "feedforward.inner.weight",
    "feedforward.output.weight",
}
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Jordan 2024
MOMENTUM = 0.95


def is_matrix_of_block(name):
    """Return whether Muon should have it: encoder.blocks.N.LAYER.weight."""
    return name.startswith("encoder.blocks.") and name.split(".", 3)[3] in OF_BLOCK


def stacked(name):
    """Return how many projections a weight holds."""
    return 3 if "query_key_value" in name else 1


def in_bf16(x):
    """Round to the 8 bits of bf16."""
    return torch.as_tensor(numpy.ascontiguousarray(x)).bfloat16().double().numpy()


def orthogonalised(matrix):
    """Return five Newton-Schulz iterations, each result of which is rounded to bf16.

    Without rounding, directions with nearly no gradient would differ from torch's: the iterations
    multiply them by 3.4 each, with the rounding of all others.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalised(matrix.T).T
    a, b, c = NEWTON_SCHULZ
    x = in_bf16(matrix)
    x = in_bf16(x / in_bf16(numpy.linalg.norm(x)))
    for _ in range(5):
        gram = in_bf16(x @ x.T)
        x = in_bf16(a * x + in_bf16(b * gram + c * gram @ gram) @ x)
    return x


class PlainMuon:
    """The formulas of Muon and AdamW over named tensors, one parameter after the other."""

    def __init__(self, weights, settings):
        self.weights, self.settings = weights, settings
        self.state = {name: (0.0 * w, 0.0 * w) for name, w in weights.items()}
        self.steps = 0

    def step(self, gradients, rate):
        self.steps += 1
        for name, gradient in gradients.items():
            weight = self.weights[name]
            decays = weight.ndim > 1
            decayed = weight * (1 - rate * self.settings.weight_decay * decays)
            update = self._muon if is_matrix_of_block(name) else self._adamw
            self.weights[name] = decayed - rate * update(name, gradient)

    def _muon(self, name, gradient):
        momentum = MOMENTUM * self.state[name][0] + (1 - MOMENTUM) * gradient
        self.state[name] = (momentum, None)
        nesterov = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        parts = numpy.split(nesterov, stacked(name))
        return numpy.concatenate(
            [0.2 * math.sqrt(max(part.shape)) * orthogonalised(part) for part in parts]
        )

    def _adamw(self, name, gradient):
        (beta_1, beta_2), (first, second) = self.settings.betas, self.state[name]
        first = beta_1 * first + (1 - beta_1) * gradient
        second = beta_2 * second + (1 - beta_2) * gradient**2
        self.state[name] = (first, second)
        unbiased = second / (1 - beta_2**self.steps)
        return first / (1 - beta_1**self.steps) / (numpy.sqrt(unbiased) + self.settings.epsilon)


def distance(found, expected, start):
    """Return how far two weights are apart, relative to the way from the start."""
    return numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected - start)


def arrays(model):
    return {name: weight.detach().double().numpy() for name, weight in model.named_parameters()}


def test_each_update_is_the_formula_of_muon_or_of_adamw():
    settings = case.case_settings(*MUON)
    model = case.build_model(settings)
    start = {name: weight.copy() for name, weight in arrays(model).items()}
    optimizer = build_optimizer(model, settings.optimizer, "cpu")
    plain = PlainMuon(dict(start), settings.optimizer)
    generator = torch.Generator().manual_seed(0)
    for rate in (0.01, 0.02, 0.005):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        plain.step({n: p.grad.double().numpy() for n, p in model.named_parameters()}, rate)
        optimizer.step()
    for name, found in arrays(model).items():
        # Sums in another order may round to the neighbour in bf16, 0.4 % of a number. The weights
        # of norms are 1 +- 0.02: 1e-7 of them is 5e-6 of their way.
        limit = 0.01 if is_matrix_of_block(name) else 1e-5
        assert distance(found, plain.weights[name], start[name]) < limit, name


def test_the_stack_of_queries_keys_and_values_as_one_matrix_would_be_another_update():
    """Else the test above could not notice it."""
    gradient = numpy.random.default_rng(0).normal(size=(96, 32))
    apart = numpy.concatenate([orthogonalised(part) for part in numpy.split(gradient, 3)])
    whole = orthogonalised(gradient) * math.sqrt(3)
    assert numpy.linalg.norm(apart - whole) > 0.3 * numpy.linalg.norm(apart)


def test_muon_takes_the_matrices_of_the_blocks_and_adamw_all_else():
    settings = case.case_settings(*MUON, "--model.position_projection_bias", "true")
    model = case.build_model(settings)
    names = OPTIMIZERS["muon"].state_names(model)
    matrices = {name for name, state in names.items() if state == ("momentum_buffer",)}
    assert matrices == {name for name in names if is_matrix_of_block(name)}
    assert len(matrices) == 4 * settings.model.num_layers
    assert {names[name] for name in names.keys() - matrices} == {("exp_avg", "exp_avg_sq")}
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = build_optimizer(model, settings.optimizer, "cpu").param_groups
    held = [known[id(parameter)] for group in groups for parameter in group["params"]]
    assert sorted(held) == sorted(names)  # each of them once
    assert {known[id(parameter)] for parameter in groups[0]["params"]} == matrices
    assert [group["weight_decay"] for group in groups] == [0.1, 0.1, 0.0]


def reference(settings):
    """Train as `training_case.reference` does, with Muon's formulas in fp64."""
    model = case.build_model(settings)
    plain = PlainMuon(arrays(model), settings.optimizer)

    def update(learning_rate):
        gradients = {name: p.grad.double().numpy() for name, p in model.named_parameters()}
        plain.step(gradients, learning_rate)
        for name, parameter in model.named_parameters():
            parameter.data.copy_(torch.from_numpy(plain.weights[name]))

    losses, norms, _ = case.reference(settings, model, update)
    return losses, norms, plain.weights


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_engine_is_the_plain_loop_and_resumes_bit_for_bit(ranks, tmp_path):
    """On one rank and on two, with skipped blocks, accumulation, clipping and weight decay."""
    settings = case.case_settings(*MUON)
    losses, norms, weights = reference(settings)
    start = arrays(case.build_model(settings))
    found = run_case(ranks, tmp_path, ["zero0_fp32", "zero0_bf16_autocast"], *MUON)
    # sums in another order; bf16 has 8 bits, averaged over the loss
    for name, limits in (("zero0_fp32", (5e-6, 5e-5)), ("zero0_bf16_autocast", (5e-3, 2e-2))):
        one = found[name]
        assert one["losses"] == pytest.approx(losses, rel=limits[0]), name
        assert one["norms"] == pytest.approx(norms, rel=limits[1]), name
        assert one["resumed"] == one["losses"][3:], name
    for name, weight in weights.items():
        if is_matrix_of_block(name):
            here = numpy.array(found["zero0_fp32"]["weights"][name])
            # where there is next to no gradient, its rounding grows as in `orthogonalised`
            assert distance(here, weight, start[name]) < 0.1, name


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
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("positions", ["tupe-r", *mostly_slow(OTHERS, "further encodings")])
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


def engine_after(steps, ranks, *words):
    settings = case.case_settings(*words)
    engine = case.build_engine(settings, ranks, "zero0_fp32")
    case.train_steps(engine, settings, range(steps))
    return engine, settings


def saved(engine, ranks, folder):
    saver = Saver(folder, CheckpointSettings(), ranks)
    saver.save(3, engine.snapshot(), {})
    saver.wait()
    return Checkpoint(checkpoint_folder(folder, 3))


def test_a_checkpoint_holds_the_state_of_muon_and_restores_it(ranks, tmp_path):
    engine, settings = engine_after(3, ranks, *MUON)
    before = engine.snapshot()
    checkpoint = saved(engine, ranks, tmp_path)
    for name, names in checkpoint.content.optimizer_state.items():
        expected = ["momentum_buffer"] if is_matrix_of_block(name) else ["exp_avg", "exp_avg_sq"]
        assert names == expected
        assert all(before.tensors[f"{kind}/{name}"].any() for kind in names)
    engine.restore(checkpoint)  # over a state that exists
    fresh = case.build_engine(settings, ranks, "zero0_fp32")
    fresh.restore(checkpoint)
    for restored in (engine, fresh):
        after = restored.snapshot()
        assert after.counters == before.counters and after.counters.adam_steps == 3
        assert after.tensors.keys() == before.tensors.keys()
        assert all(torch.equal(t, before.tensors[key]) for key, t in after.tensors.items())
    numbers = sum(tensor.numel() for tensor in before.tensors.values())
    parameters = sum(parameter.numel() for parameter in engine._module.parameters())
    assert numbers == parameters + state_numbers(settings)


def test_a_checkpoint_of_another_optimizer_is_refused_naming_both(ranks, tmp_path):
    adamw, _ = engine_after(1, ranks, *MUON, "--optimizer.kind", "torch")
    muon, _ = engine_after(1, ranks, *MUON)
    before = muon.snapshot()
    refusal = "holds exp_avg and exp_avg_sq, and this run's optimizer keeps momentum_buffer"
    with pytest.raises(CheckpointError, match=refusal) as refused:
        muon.restore(saved(adamw, ranks, tmp_path))
    assert len(str(refused.value).splitlines()) == 1
    after = muon.snapshot()
    assert all(torch.equal(t, before.tensors[key]) for key, t in after.tensors.items())


@pytest.mark.parametrize("kind", ["torch", "muon"])
def test_an_update_with_a_gradient_that_is_not_finite_is_left_out(kind, ranks):
    engine, settings = engine_after(2, ranks, *MUON, "--optimizer.kind", kind)
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


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_muon_is_refused_where_zero_divides_the_matrices(stage):
    settings = case.case_settings(*MUON)
    config = read_ds_config(f"zero{stage}_fp32", "cpu")
    refusal = f"'muon' does not work at ZeRO stage {stage}: .*whole matrices; use stage 0"
    with pytest.raises(ConfigError, match=refusal):
        checked_optimizer(settings.optimizer, "cpu", config)


SHIPPED = sorted((file.stem for file in DS_CONFIGS.glob("*.json")), key="zero1_fp16".__ne__)


@pytest.mark.parametrize("name", mostly_slow(SHIPPED, "further DeepSpeed configurations"))
def test_an_optimizer_that_is_added_works_with_every_shipped_json(
    name, ranks, tmp_path, monkeypatch
):
    monkeypatch.setitem(OPTIMIZERS, "rmsprop", None)  # and remove it afterwards
    exec(BLOCKS["pretrain/engine/optimizers"], dict(vars(optimizers)))
    monkeypatch.setattr(get_accelerator(), "is_fp16_supported", lambda: True)  # slow on a CPU
    # Its first steps are ten times the rate, whatever the gradients: half precision turns signs.
    words = ("--optimizer.kind", "rmsprop", "--learning_rate.peak", "0.001")
    settings = case.case_settings(*words, "--engine.ds_config", name)
    checked_ds_config(settings, ranks)
    model = case.build_model(settings)
    rmsprop = build_optimizer(model, settings.optimizer, "cpu")

    def update(rate):
        for group in rmsprop.param_groups:
            group["lr"] = rate
        rmsprop.step()

    losses, _, _ = case.reference(settings, model, update)
    found = case.whole_and_resumed(settings, ranks, name, tmp_path)
    # Sums in another order; 8 or 11 bits in half precision.
    assert found["losses"] == pytest.approx(losses, rel=1e-5 if "fp32" in name else 1e-2)
    assert found["resumed"] == found["losses"][3:]


def test_an_unknown_optimizer_is_named():
    settings = case.case_settings("--optimizer.kind", "moun")
    refusal = "optimizer.kind='moun' does not exist; did you mean muon.*; one of auto, torch"
    with pytest.raises(ConfigError, match=refusal):
        checked_optimizer(settings.optimizer, "cpu", {})


def test_a_deepspeed_json_that_names_adamw_is_refused_beside_muon():
    config = {"optimizer": {"type": "AdamW"}}
    with pytest.raises(ConfigError, match="JSON has a block optimizer.*'muon'; remove the block"):
        checked_optimizer(case.case_settings(*MUON).optimizer, "cpu", config)
    checked_optimizer(case.case_settings().optimizer, "cpu", config)
