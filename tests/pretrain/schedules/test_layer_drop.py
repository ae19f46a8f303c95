import json
import math
import statistics

import pytest
import torch

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import LayerDropSettings, as_json, flat, stored_settings
from pretrain.schedules import layer_drop
from pretrain.schedules.layer_drop import (
    branch_scales,
    check_layer_drop,
    keep_probabilities,
    scales_of_step,
    theta_at,
)

LAYERS, STEPS = 12, 1000


def drop(**values):
    return LayerDropSettings(**{"schedule": "progressive", **values})


def scales(settings, step, micro_batch=0, seed=0):
    theta = theta_at(step, settings, STEPS)
    return branch_scales(step, micro_batch, settings, theta=theta, num_layers=LAYERS, seed=seed)


def test_gamma_defaults_to_100_over_the_steps():
    assert theta_at(7, drop(), STEPS) == theta_at(7, drop(gamma=100 / STEPS), STEPS)
    assert theta_at(0, drop(), STEPS) == 1.0


def test_the_default_reverse_lasts_the_whole_run():
    """A tenth of the run later, e^-0.5 of the way is left; at its end, less than 1 %."""
    reverse = drop(schedule="reverse", theta_bar=0.4)
    for share in (0, 0.1, 0.25, 0.5, 0.9, 1):
        expected = 1 - 0.6 * math.exp(-5 * share)
        assert theta_at(share * STEPS, reverse, STEPS) == pytest.approx(expected)


def test_linear_schedules_are_straight_lines_between_theta_bar_and_one():
    up, down = (drop(schedule=f"linear_{way}", theta_bar=0.3) for way in ("up", "down"))
    for step in (0, 1, 250, 500, 999, 1000):
        assert theta_at(step, up, STEPS) == pytest.approx(0.3 + 0.7 * step / 1000)
        assert theta_at(step, down, STEPS) == pytest.approx(1 - 0.7 * step / 1000)


@pytest.mark.parametrize("num_layers", [4, 12, 24])
def test_stages_keep_first_and_last_block_and_the_others_equally_often(num_layers):
    """RaPTr: 6, 8, 10 and 12 blocks of 12, in equal quarters of the run."""
    settings = drop(schedule="stages")
    shares = (1 / 2, 2 / 3, 5 / 6, 1)
    for step in (0, 1, 249, 250, 499, 500, 749, 750, 999, 1000):
        stage = next((number for number in range(4) if step < 250 * (number + 1)), 3)
        theta = theta_at(step, settings, STEPS)
        assert theta == shares[stage]
        kept = keep_probabilities(theta, num_layers, settings)
        assert kept[0] == kept[-1] == 1 and len(set(kept[1:-1])) == 1
        assert sum(kept) == pytest.approx(shares[stage] * num_layers)


def test_stages_can_be_of_any_number():
    settings = drop(schedule="stages", stages=(0.3, 0.6, 1.0))
    found = [theta_at(step, settings, 9) for step in range(9)]
    assert found == [0.3] * 3 + [0.6] * 3 + [1.0] * 3


def test_settings_of_an_old_run_are_those_of_the_same_run_today():
    for words in ([], ["--layer_drop.schedule", "progressive"]):
        today = json.loads(as_json(load_settings("tiny_cpu", words)))
        written = {**today, "layer_drop": {**today["layer_drop"], "gamma": None}}
        del written["layer_drop"]["stages"]
        assert stored_settings(written) == flat(today)
    reverse = {**written, "layer_drop": {**written["layer_drop"], "schedule": "reverse"}}
    assert stored_settings(reverse)["layer_drop.gamma"] == 100 / today["steps"]


def test_no_schedule_keeps_every_block_unscaled():
    assert scales(drop(schedule="none"), 900) == [1.0] * LAYERS


def test_deeper_blocks_are_kept_less_often_down_to_theta():
    probabilities = keep_probabilities(0.4, LAYERS, drop())
    for layer, probability in enumerate(probabilities, start=1):
        assert probability == pytest.approx(1 - layer / 12 * 0.6)
    # expected depth: L - (L + 1)(1 - theta) / 2
    assert sum(probabilities) == pytest.approx(12 - 13 * 0.6 / 2)


def test_blocks_are_kept_as_often_as_their_probability_says():
    settings, draws = drop(schedule="constant", theta_bar=0.5), 4000
    kept = [0] * LAYERS
    for step in range(draws):
        for layer, scale in enumerate(scales(settings, step)):
            kept[layer] += scale != 0
    for layer, count in enumerate(kept, start=1):
        probability = 1 - layer / LAYERS * 0.5
        deviation = math.sqrt(probability * (1 - probability) / draws)
        assert abs(count / draws - probability) < 4 * deviation  # one in 16,000 by chance


def test_drop_masks_of_two_blocks_steps_and_micro_batches_are_independent():
    settings = drop(schedule="constant", theta_bar=0.01)  # the last block is kept 1 time in 100
    by_step = [scales(settings, step)[5] != 0 for step in range(3000)]
    by_micro_batch = [scales(settings, step, 1)[5] != 0 for step in range(3000)]
    by_layer = [scales(settings, step)[6] != 0 for step in range(3000)]
    for other in (by_micro_batch, by_layer, by_step[1:] + by_step[:1]):
        assert abs(statistics.correlation(by_step, other)) < 0.07  # 4 / sqrt(3000)
    drawn = [one for n in range(81) for one in layer_drop._uniforms(0, n // 9, n % 9, LAYERS)]
    assert len({*drawn}) == len(drawn)


def test_a_scale_is_one_over_the_probability_that_was_drawn_with():
    settings = drop(theta_bar=0.5, gamma=0.05)
    for step in (0, 10, 300):
        probabilities = keep_probabilities(theta_at(step, settings, STEPS), LAYERS, settings)
        for scale, probability in zip(scales(settings, step), probabilities, strict=True):
            assert scale == 0 or scale == pytest.approx(1 / probability)
    assert set(scales(drop(rescale=False, theta_bar=0.2), 900)) <= {0.0, 1.0}


def test_drop_masks_depend_on_step_micro_batch_and_seed_and_on_nothing_else():
    settings = drop(schedule="constant", theta_bar=0.1)
    drawn = {
        (step, micro, seed): tuple(scales(settings, step, micro, seed))
        for step in range(20)
        for micro in range(2)
        for seed in range(2)
    }
    assert len(set(drawn.values())) > 70
    torch.manual_seed(1)
    assert tuple(scales(settings, 7, 1, 1)) == drawn[7, 1, 1]


@pytest.mark.parametrize("draws", [1, 2, 4])
def test_the_draws_of_a_step_are_shared_by_equal_parts_of_its_micro_batches(draws):
    """So that the same sequences meet the same blocks, whatever is accumulated."""
    rows = {}
    for count in (4, 8):
        settings = load_settings(
            "tiny_cpu",
            ["--layer_drop.schedule", "constant", "--layer_drop.draw_per", str(draws)]
            + ["--layer_drop.theta_bar", "0.3"],
        )
        of_step = scales_of_step(5, settings, theta=0.3, count=count)
        rows[count] = [of_step[row * count // 64] for row in range(64)]
        assert of_step == [
            branch_scales(5, draw, settings.layer_drop, theta=0.3, num_layers=2, seed=0)
            for draw in range(draws)
            for _ in range(count // draws)
        ]
    assert rows[4] == rows[8]


def test_a_uniform_profile_keeps_as_many_blocks_as_the_linear_one():
    for theta in (0.3, 0.7, 1.0):
        uniform = keep_probabilities(theta, 12, drop(depth_profile="uniform"))
        assert sum(uniform) == pytest.approx(sum(keep_probabilities(theta, 12, drop())))
        assert len(set(uniform)) == 1


def test_bing_bert_had_no_uniform_profile():
    with pytest.raises(ConfigError, match="bing_bert, which had no layer_drop.depth_profile"):
        check_layer_drop(drop(compat="deepspeed", depth_profile="uniform"), 12)


def test_deepspeed_compatibility_repeats_bing_berts_flaws():
    """Theta lags a step, the first block always runs, and 1/p is that of the next block."""
    settings = drop(theta_bar=0.5, gamma=0.1, compat="deepspeed")
    thetas = [theta_at(step, settings, STEPS) for step in range(4)]
    assert thetas == pytest.approx([1, 1, 0.9524187, 0.9093654], abs=1e-6)
    assert keep_probabilities(0.5, LAYERS, settings)[0] == 1.0
    step_down = 0.5 / LAYERS
    for step in range(400, 460):
        for layer, scale in enumerate(scales(settings, step)):
            assert scale == 0 or scale == pytest.approx(1 / (1 - (layer + 1) * step_down))


@pytest.mark.parametrize(
    "values",
    [
        {"schedule": "none", "theta_bar": 0.3},
        {"schedule": "constant", "gamma": 0.1},
        {"schedule": "progressive", "stages": (0.5,)},
        {"schedule": "stages", "theta_bar": 0.3},
    ],
)
def test_a_setting_without_effect_is_refused(values):
    with pytest.raises(ValueError, match="has no effect with layer_drop.schedule"):
        drop(**values)


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="'progresive'.*did you mean progressive"):
        check_layer_drop(drop(schedule="progresive"), LAYERS)
    with pytest.raises(ConfigError, match="compat='deepspeed' is defined for"):
        check_layer_drop(drop(schedule="reverse", compat="deepspeed"), LAYERS)
    for stages, few, enough in (((0.4, 1.0), 4, 5), ((1.0,), 2, 3)):
        staged = drop(schedule="stages", stages=stages)
        check_layer_drop(staged, enough)
        with pytest.raises(ConfigError, match=f"num_layers={few}: the first and the last block"):
            check_layer_drop(staged, few)
    for stages in ((), (0.0, 1.0), (1.2,)):
        with pytest.raises(ValueError, match="stages"):
            drop(schedule="stages", stages=stages)
