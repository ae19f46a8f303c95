"""Tuning: equal trials for each arm, on other seeds; the best value goes into the runs."""

from pathlib import Path

import pytest

from pretrain.config.errors import ConfigError
from tests.pretrain.sweeps.conftest import trained
from tests.pretrain.sweeps.test_spec import sweep

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
# The lowest loss of arm one is at 0.5, that of arm two at 2.0.
LOSSES = "one-0.25=5.2 one-0.5=5.0 one-1.0=5.1 one-2.0=5.3 two-0.25=5.3 two-0.5=5.2 two-1.0=5.1"
LOSSES += " two-2.0=5.0"


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "mine.toml").write_text(SPEC)
    return tmp_path / "mine.toml"


def peaks(stubs, part):
    """Return folder and peak of each training whose folder is below a part of `runs/x`."""
    found = []
    for call in stubs.calls(" train "):
        words = call.split()
        folder = Path(words[words.index("--run-folder") + 1])
        if str(folder.parent) == part:
            found.append((folder.name, words[words.index(PEAK) + 1] if PEAK in words else None))
    return found


def test_each_arm_is_tried_with_each_value_and_trained_with_its_best(
    here, run, spec, monkeypatch, capsys
):
    monkeypatch.setenv("STUB_LOSSES", LOSSES)
    run(spec, "--name", "x")
    values = ("0.25", "0.5", "1.0", "2.0")
    trials = [(f"{arm}-{value}-seed5", value) for arm in ("one", "two") for value in values]
    assert peaks(here, "runs/x/trials") == trials
    best = {"one": "0.5", "two": "2.0"}
    runs = [(f"{arm}-seed{seed}", best[arm]) for seed in (3, 4) for arm in best]
    assert peaks(here, "runs/x") == runs
    assert {seed for _, folder, seed, _ in trained(here) if "trials" in folder} == {"5"}
    (compared,) = here.compared
    notes = [compared[n + 1] for n, word in enumerate(compared) if word == "--note"]
    assert len(notes) == 3 and "trials" not in " ".join(compared[:5])
    assert notes[0].startswith("tuned one: learning_rate.peak 0.5 (learning_rate.peak 0.25: 5.200;")
    assert notes[2] == "best at the edge of what was tried: learning_rate.peak of two"
    said = "tuning: 8 trials before the runs, each 100% of a run\n"
    assert said in capsys.readouterr().out


def test_a_setting_that_is_given_and_tried_is_refused(spec):
    sweep(spec, "--optimizer.epsilon", "0.001")
    with pytest.raises(ConfigError, match="^learning_rate.peak is given, and .tune. tries it"):
        sweep(spec, PEAK, "0.001")
    spec.write_text(SPEC.replace("[arms]", "settings.learning_rate.peak = 0.5\n[arms]"))
    with pytest.raises(ConfigError, match="^learning_rate.peak is given, and .tune. tries it"):
        sweep(spec)


def test_a_trial_of_a_share_of_the_length_is_a_run_of_so_many_steps(here, run, spec, monkeypatch):
    spec.write_text(SPEC + "share = 0.25\nseeds = 2\n")
    monkeypatch.setenv("STUB_LOSSES", LOSSES)
    run(spec, "--name", "x")
    names = [name for name, _ in peaks(here, "runs/x/trials") if name.startswith("one-")]
    assert names == [f"one-{p}-0.25-seed{s}" for s in (5, 6) for p in ("0.25", "0.5", "1.0", "2.0")]
    assert all("--steps 25 " in call for call in here.calls("trials/one-"))
    assert {peak for name, peak in peaks(here, "runs/x") if "one" in name} == {"0.5"}


def test_a_trial_that_diverges_is_a_result(here, run, spec, monkeypatch, capsys):
    monkeypatch.setenv("STUB_LOSSES", LOSSES)
    monkeypatch.setenv("STUB_DIVERGES", "* train *trials/two-2.0-*")
    run(spec, "--name", "x")
    assert {peak for name, peak in peaks(here, "runs/x") if "two" in name} == {"1.0"}
    assert "two-2.0-seed5: diverged, and the others go on" in capsys.readouterr().out
    here.log.unlink()
    run(spec, "--name", "x")
    assert not here.calls(" train ")


def test_an_arm_may_try_other_settings_as_many_times(here, run, spec, monkeypatch):
    """Positions of one arm have a rate of their own; the others spend their trials elsewhere."""
    text = SPEC.replace('two = "tupe_r"\n', "").replace("[0.25, 0.5, 1.0, 2.0]", "[0.25, 0.5]")
    own = '[arms.two]\nrecipe = "tupe_r"\ntune.optimizer.relative_rate = [3.0, 5.0]\n[tune]'
    spec.write_text(text.replace("[tune]", own))
    monkeypatch.setenv("STUB_LOSSES", "one-0.25=5.2 one-0.5=5.0 two-3.0=5.3 two-5.0=5.1")
    run(spec, "--name", "x")
    trials = [name for name, _ in peaks(here, "runs/x/trials")]
    assert trials == [f"{name}-seed5" for name in ("one-0.25", "one-0.5", "two-3.0", "two-5.0")]
    for call in here.calls(" train "):
        if "runs/x/two-seed" in call:
            assert "--optimizer.relative_rate 5.0 " in call and PEAK not in call
