"""Settings, models and training loops of the API, against the command line and the engine."""

import json

import pytest
import torch
from torch import nn

import tupelo
from data_prep.shards.format import open_shards
from pretrain.checkpoint.format import load_weights
from pretrain.config.recipe import load_settings
from pretrain.data.frequencies import word_frequencies
from tests.plain_loop import plain_loop
from tests.tupelo.conftest import DROPS
from tupelo.evaluation_mode import evaluation_mode


@pytest.mark.parametrize(
    "values",
    [
        {"optimizer.max_gradient_norm": None, "layer_drop.rescale": False, **DROPS},
        {"data.corpus": ("a.txt", "c"), "name": "other"},
    ],
)
def test_settings_are_those_of_the_command_line(values):
    def word(value):
        return ",".join(value) if isinstance(value, tuple) else str(value).lower()

    words = [f"--{name}={word(value)}" for name, value in values.items()]
    assert tupelo.settings("tiny_cpu", values) == load_settings("tiny_cpu", words)


def test_settings_are_read_from_a_run_and_changed_again(run):
    recorded = tupelo.settings(run)
    assert recorded == load_settings(run)
    changed = tupelo.settings(recorded, {"seed": 5, "learning_rate.peak": 0.5})
    assert (changed.seed, changed.learning_rate.peak) == (5, 0.5)
    assert tupelo.settings(changed, {"seed": 0, "learning_rate.peak": 1e-3}) == recorded


def test_a_model_has_the_weights_of_its_seed_and_the_callers_generator_is_left_alone():
    before = torch.random.get_rng_state()
    first, again, other = (tupelo.build("tiny_cpu", {"seed": seed}) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    table, same, another = (m.encoder.token_embeddings.weight for m in (first, again, other))
    assert torch.equal(table, same) and not torch.equal(table, another)
    assert first.training and table.shape == (1024, 32)


def test_an_output_bias_of_frequencies_is_that_of_the_shards(shards):
    values = {"model.output_bias": "frequencies", "data.shards": str(shards)}
    model = tupelo.build("tiny_cpu", values)
    expected = torch.from_numpy(word_frequencies(open_shards(shards), 1024)).log()
    torch.testing.assert_close(model.head.output_bias.double(), expected, rtol=1e-6, atol=0)
    with pytest.raises(ValueError, match="there are no shards in missing"):
        tupelo.build("tiny_cpu", values | {"data.shards": "missing"})


def test_a_plain_loop_with_layer_drop_trains_what_the_command_trains(run):
    settings = tupelo.settings(run)
    model, batches = tupelo.build(run), tupelo.training_batches(settings)
    plans = tupelo.step_plans(settings)

    def micro_batches(step):
        plan = next(plans)
        assert plan.step == step + 1 and len(plan.branch_scales) == 2
        return plan.micro_batches(batches)

    result = plain_loop(model, settings, micro_batches, places=2)
    assert next(plans, None) is None
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert min(metrics[-1]["keep_rates"]) < 1  # blocks were skipped
    # engines: 1e-6 a step, over 20 steps
    assert [line["loss"] for line in metrics] == pytest.approx(result.losses, rel=2e-5)
    trained = load_weights(run / "checkpoints" / "step_00000020")
    # Adam moves the weights of the smallest gradients as far as the others, and the rounding of
    # these gradients with them.
    torch.testing.assert_close(result.weights, trained, rtol=1e-4, atol=1e-5)


def test_the_held_out_loss_is_that_of_the_checkpoint_without_dropout(run):
    model = tupelo.load(run).model
    model.encoder.dropout.p = 0.5
    model.train()
    last = json.loads((run / "evals.jsonl").read_text().splitlines()[-1])
    # engines and kernels: 1e-6
    found = tupelo.held_out_loss(model, tupelo.settings(run))
    assert found == pytest.approx(last["loss"], rel=2e-6)
    assert model.training


def test_a_schedule_that_follows_the_clock_is_refused():
    settings = tupelo.settings("tiny_cpu", {"hours": 2})
    with pytest.raises(ValueError, match="hours=2: the schedule follows the clock of"):
        tupelo.step_plans(settings)


def test_modules_keep_their_own_modes_in_a_computation_without_dropout():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    model[1].eval()  # such as an encoder that its caller keeps as it is
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == [True, True, False, False]
