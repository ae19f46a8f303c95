"""Equal cost: the lengths of arms, by the FLOPs that test_progress.py sums step by step."""

import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.schedules.learning_rate import learning_rate_at
from pretrain.train.sweeps.budget import expected_flops, fitted
from tests.pretrain.train.sweeps.test_spec import sweep

ARMS = """\
[arms]
full = "tiny_cpu"
[arms.drop]
recipe = "tiny_cpu"
layer_drop.schedule = "progressive"
values.layer_drop.theta_bar = [0.3, 0.7]
[arms.wide]
recipe = "tiny_cpu"
model.width = 64
batch.global_sequences = 12
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "mine.toml").write_text(ARMS)
    return tmp_path / "mine.toml"


@pytest.mark.parametrize("budget", ["flops", "flops=3e9"])
def test_equal_flops_within_half_a_step_each(spec, budget):
    asked = sweep(spec, "--budget", budget, "--steps", "200")
    settings = {arm.name: arm.settings for arm in asked.arms}
    costs = {name: expected_flops(one) for name, one in settings.items()}
    wanted = 3e9 if "=" in budget else costs["full"]
    for name, cost in costs.items():
        assert abs(cost - wanted) <= 0.51 * cost / settings[name].steps
    assert settings["drop-0.3"].steps > settings["drop-0.7"].steps > settings["full"].steps
    assert settings["wide"].steps < settings["full"].steps


def test_equal_tokens(spec):
    by_tokens = sweep(spec, "--budget", "tokens", "--steps", "30").arms
    assert [arm.settings.steps for arm in by_tokens] == [30, 30, 30, 20]
    tokens = sweep(spec, "--budget", f"tokens={32 * 8 * 12}").arms
    assert [arm.settings.steps for arm in tokens] == [12, 12, 12, 8]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--budget", "euros"), "--budget 'euros': give tokens or flops"),
        (("--budget", "flops=much"), "--budget 'flops=much': give"),
        (("--budget", "flops", "--hours", "2"), "a budget of flops sets the steps, and hours=2.0"),
        (("--budget", "hours=2"), "--budget 'hours=2': give .*--hours"),
    ],
)
def test_a_wrong_budget_is_one_line(spec, words, message):
    with pytest.raises(ConfigError, match=message):
        sweep(spec, *words)


def test_the_length_of_a_trial_is_a_share_of_the_budget_of_its_arm(tmp_path):
    """What is stated in steps follows both: the decay ends where that of the recipe does."""
    (tmp_path / "mine.toml").write_text(
        'budget = "flops"\nsettings.steps = 40\n[arms]\nfull = "tiny_cpu"\n[arms.drop]\n'
        'recipe = "tiny_cpu"\nlayer_drop = {schedule = "progressive", gamma = 0.5}\n'
        'learning_rate = {schedule = "warmup_linear_decay_exp", decay_rate = 0.5, '
        "decay_steps = 4}\n"
    )
    asked = sweep(tmp_path / "mine.toml")
    whole = asked.arms[1].settings
    assert whole.steps > 40
    half = asked.arm(asked.spec.arms[1], {"learning_rate.peak": "0.5"}, share=0.5).settings
    assert half.steps == round(whole.steps / 2) and half.learning_rate.peak == 0.5
    for arm in (whole, half):
        assert arm.layer_drop.gamma == pytest.approx(0.5 * 40 / arm.steps)
        assert arm.learning_rate.decay_steps == pytest.approx(4 * arm.steps / 40, abs=0.5)


@pytest.mark.parametrize("steps", [5_000, 200_000, 3_000_000])
def test_a_fitted_exponential_decay_ends_where_the_recipes_does(steps):
    settings = load_settings("pld_base")
    rate = settings.learning_rate
    fit = rate.model_copy(
        update={"decay_steps": fitted(settings, steps)["learning_rate.decay_steps"]}
    )
    assert learning_rate_at(steps, fit, steps) == pytest.approx(1e-3 * 0.99**196, rel=0.01)


def test_decays_that_are_stated_in_steps_are_scaled():
    drops = ("--layer_drop.schedule", "progressive", "--layer_drop.gamma", "0.01")
    settings = load_settings("tiny_cpu", ["--steps", "2000", *drops])
    assert fitted(settings, 7200)["layer_drop.gamma"] == pytest.approx(0.01 * 2000 / 7200)


def test_a_recipe_that_is_all_warm_up_can_be_fitted():
    words = (
        *("--learning_rate.schedule", "warmup_linear_decay_exp", "--learning_rate.decay_rate"),
        *("0.9", "--learning_rate.decay_steps", "500"),
        *("--steps", "1", "--learning_rate.warmup_ratio", "0.6"),
    )
    settings = load_settings("tiny_cpu", words)
    assert fitted(settings, 1)["learning_rate.decay_steps"] == 500
    assert fitted(settings, 1000)["learning_rate.decay_steps"] == 500 * 400
