"""Tuning: equal trials for each arm, on other seeds; the best value goes into the runs."""

import json
from pathlib import Path

import pytest

from pretrain.config.errors import ConfigError
from pretrain.train.sweeps.tuning import choose, points_tried
from tests.pretrain.run_files import RESULT
from tests.pretrain.train.sweeps.conftest import trained
from tests.pretrain.train.sweeps.test_spec import sweep

PEAK = "--learning_rate.peak"
SPEC = """\
seeds = [3, 4]
settings.steps = 100
[arms]
one = "bert_r"
two = "tupe_r"
[tune]
learning_rate.peak = [0.25, 0.5, 1.0, 2.0]
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "mine.toml").write_text(SPEC)
    return tmp_path / "mine.toml"


def chosen(asked, folder, losses):
    """Return the arms and the notes after trials that end with these losses; None: it diverged."""
    by_arm = points_tried(asked, folder)
    for tried, of_arm in zip(by_arm, losses, strict=True):
        for one, loss in zip(tried, of_arm, strict=True):
            for trial in one.trials:
                trial.folder.mkdir(parents=True)
                end = {**RESULT, "held_out_loss": loss}
                if loss is not None:
                    (trial.folder / "result.json").write_text(json.dumps(end))
    return choose(asked, by_arm)


def test_each_arm_is_tried_with_each_value_and_trained_with_its_best(
    here, run, spec, monkeypatch, capsys
):
    spec.write_text(SPEC.replace("[0.25, 0.5, 1.0, 2.0]", "[0.25, 0.5]"))
    monkeypatch.setenv("STUB_LOSSES", "one-0.25=5.2 one-0.5=5.0 two-0.25=5.0 two-0.5=5.2")
    run(spec, "--name", "x")
    found = [(folder.removeprefix("runs/x/"), seed) for _, folder, seed, _ in trained(here)]
    points = [f"{arm}-{p}" for arm in ("one", "two") for p in ("0.25", "0.5")]
    trials = [(f"trials/{point}-seed1000000", "1000000") for point in points]
    runs = [(f"{arm}-seed{seed}", seed) for seed in "34" for arm in ("one", "two")]
    assert found == [*trials, *runs]
    for call in here.calls(" train "):
        best = "0.5" if "runs/x/one-seed" in call else "0.25"
        assert "/trials/" in call or f" {PEAK} {best} " in call
    (compared,) = here.compared
    assert compared[-1].startswith("tuned two: learning_rate.peak 0.25 (")
    assert "tuning: 4 trials before the runs, each 100% of a run\n" in capsys.readouterr().out


def test_the_lowest_loss_is_chosen_and_all_that_was_tried_is_noted(spec, tmp_path):
    losses = [(5.2, 5.0, 5.1, 5.3), (5.3, 5.1, 5.2, None)]
    arms, notes = chosen(sweep(spec), tmp_path / "x", losses)
    assert [arm.settings.learning_rate.peak for arm in arms] == [0.5, 0.5]
    assert notes[0].startswith("tuned one: learning_rate.peak 0.5 (learning_rate.peak 0.25: 5.200;")
    assert notes[1].endswith("learning_rate.peak 2.0: diverged)") and len(notes) == 2
    _, notes = chosen(sweep(spec), tmp_path / "z", [losses[0], [None] * 4])
    assert notes[1].count("diverged") == 4


def test_a_setting_that_is_given_and_tried_is_refused(spec):
    sweep(spec, "--optimizer.epsilon", "0.001")
    with pytest.raises(ConfigError, match="^learning_rate.peak is given, and .tune. tries it"):
        sweep(spec, PEAK, "0.001")
    spec.write_text(SPEC.replace("[arms]", "settings.learning_rate.peak = 0.5\n[arms]"))
    with pytest.raises(ConfigError, match="^learning_rate.peak is given, and .tune. tries it"):
        sweep(spec)
    spec.write_text(SPEC.replace("settings.steps = 100", "").replace("learning_rate.peak", "steps"))
    for length in (("--budget", "tokens=1e6"), ("--hours", "2")):
        with pytest.raises(ConfigError, match="^steps is given, and .tune. tries it"):
            sweep(spec, *length)


def test_an_arm_may_try_other_settings_as_many_times_and_a_trial_be_a_share_of_a_run(spec):
    """Positions of one arm have a rate of their own; the others spend their trials elsewhere."""
    text = SPEC.replace('two = "tupe_r"\n', "").replace("[0.25, 0.5, 1.0, 2.0]", "[0.25, 0.5]")
    own = '[arms.two]\nrecipe = "tupe_r"\ntune.optimizer.relative_rate = [3.0, 5.0]\n[tune]'
    spec.write_text(text.replace("[tune]", own) + "share = 0.25\nseeds = 2\n")
    first, second = points_tried(sweep(spec), Path("x"))
    names = [trial.folder.name for tried in (*first, *second) for trial in tried.trials]
    points = ("one-0.25", "one-0.5", "two-3.0", "two-5.0")
    again = points_tried(sweep(spec, "--seeds", "9"), Path("x"))
    assert again[0][0].trials[0].folder == first[0].trials[0].folder  # also with more seeds
    assert names == [f"{point}-0.25-seed{seed}" for point in points for seed in (10**6, 10**6 + 1)]
    settings = [tried.trials[0].arm.settings for tried in (*first, *second)]
    assert [one.steps for one in settings] == [25] * 4
    assert [one.optimizer.relative_rate for one in settings[2:]] == [3.0, 5.0]
