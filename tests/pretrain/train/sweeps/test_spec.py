"""A sweep that is written down ends in the runs of the command line that says the same."""

from pathlib import Path

import pytest

from data_prep.command_line import CommandParser
from pretrain.__main__ import main
from pretrain.commands import sweep as sweep_command
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.recipe_files import first_comment, recipe_files, sweep_files
from pretrain.train.sweeps.plan import Sweep

SPEC = """\
# Three of a kind.
seeds = [4, 8]
[settings]
steps = 9
optimizer.betas = [0.9, 0.95]
[arms]
baseline = "bert_r"
slow = { recipe = "bert_r", learning_rate.peak = 0.000123456789, model.output_bias = "zeros" }
[arms.drop]
recipe = "tupe_r_pld"
layer_drop.rescale = false
values.layer_drop.theta_bar = [0.5, 0.9]
"""


def sweep(*words):
    parser = CommandParser(allow_abbrev=False)
    sweep_command.add_arguments(parser)
    return Sweep(parser.parse_args(list(map(str, words))))


@pytest.fixture
def written(tmp_path):
    """Write a spec."""

    def write(text, name="mine.toml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_each_arm_has_the_settings_that_the_same_options_give(written):
    found = {arm.name: arm.settings for arm in sweep(written(SPEC)).arms}
    common = ("--steps", "9", "--optimizer.betas", "0.9,0.95")
    drop = (*common, "--layer_drop.rescale", "false", "--layer_drop.theta_bar")
    slow = ("--learning_rate.peak", "0.000123456789", "--model.output_bias", "zeros")
    assert found == {
        "baseline": load_settings("bert_r", (*common, "--name", "baseline")),
        "slow": load_settings("bert_r", (*common, *slow, "--name", "slow")),
        "drop-0.5": load_settings("tupe_r_pld", (*drop, "0.5", "--name", "drop-0.5")),
        "drop-0.9": load_settings("tupe_r_pld", (*drop, "0.9", "--name", "drop-0.9")),
    }


def test_a_run_is_started_with_words_that_give_its_settings(written, tmp_path):
    asked = sweep(written(SPEC))
    for arm, runs in zip(asked.arms, asked.runs(tmp_path), strict=True):
        assert [run.folder.name for run in runs] == [f"{arm.name}-seed4", f"{arm.name}-seed8"]
        for run, seed in zip(runs, (4, 8), strict=True):
            settings = load_settings(run.arm.recipe, run.words[2:-2])
            assert settings == arm.settings.model_copy(update={"seed": seed})


def test_every_combination_of_values_is_an_arm(written):
    spec = written(
        '[arms.grid]\nrecipe = "tupe_r"\nvalues.model.norm = ["pre", "post"]\n'
        "values.optimizer.betas = [[0.9, 0.95], [0.9, 0.99]]\n"
    )
    found = {arm.name: arm.settings for arm in sweep(spec).arms}
    assert list(found) == [f"grid-{n}-0.9_{b}" for n in ("pre", "post") for b in ("0.95", "0.99")]
    for name, settings in found.items():
        _, norm, beta = name.split("-")
        assert (settings.model.norm, settings.optimizer.betas[1]) == (norm, float(beta[4:]))


def test_the_command_line_comes_before_the_spec(written):
    spec = written(SPEC)
    assert {arm.settings.steps for arm in sweep(spec, "--steps", "5").arms} == {5}
    asked = sweep(spec, "--seeds", "3", "--seed", "7")
    assert asked.seeds_of(asked.arms[0]) == [7, 8, 9]
    with pytest.raises(ConfigError, match="^--seeds: "):  # not the file
        sweep(spec, "--seeds", "0")


def test_text_of_the_command_line_replaces_that_of_the_spec(written):
    spec = written('settings.data.corpus = ["a.txt", "b.txt"]\narms.one = "bert_r"\n')
    assert sweep(spec).arms[0].settings.data.corpus == ("a.txt", "b.txt")
    given = sweep(spec, "--corpus", "c.txt", "d.txt").arms[0]
    assert given.settings.data.corpus == ("c.txt", "d.txt")


@pytest.mark.parametrize("name", sorted(sweep_files()))
def test_a_sweep_of_ours_has_a_summary_a_name_of_its_own_and_arms_that_can_be_compared(name):
    asked = sweep(name, "--corpus", "text.txt")
    assert len(asked.arms) > 1 and first_comment(sweep_files()[name])
    assert name not in recipe_files()


@pytest.mark.parametrize(("command", "name"), [("train", "theta_bar"), ("prepare", "mine.toml")])
def test_a_sweep_in_place_of_a_recipe_is_one_line(written, monkeypatch, command, name):
    monkeypatch.chdir(written(SPEC).parent)
    with pytest.raises(ConfigError, match=f"^{name} is a sweep of .*: tupelo sweep {name}$"):
        main([command, name])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[arms]", "arms={}: .* at least 1 item"),
        ("arms.a = 'brt_r'", "no recipe 'brt_r'; did you mean bert_r"),
        ("arms.'a b' = 'bert_r'", "use letters, digits, and . _ - for names, not a b"),
        ("arms.report = 'bert_r'", "an arm cannot be called report"),
        (
            "arms.a = {recipe = 'bert_r', model.nrm = 'pre'}",
            "arm 'a': there is no setting model.nrm",
        ),
        ("arms.a = {recipe = 'bert_r', seed = 3}", "arm 'a' has seed: give seeds at the top"),
        ("arms.a = {recipe = 'bert_r', values.steps = 3}", "steps=3 is not a list"),
        ("arms.a = {recipe = 'bert_r', values.steps = [3, 3]}", "has a value twice"),
        ("arms.a = 'bert_r'\narms.b = 'bert_r'", "a and b have the same settings"),
        ("steps = 3\narms.a = 'bert_r'", r"steps is a setting of runs; put it under \[settings\]"),
        ("sedes = 3\narms.a = 'bert_r'", "there is no setting sedes; did you mean seeds"),
        ("seeds = [1, 1]\narms.a = 'bert_r'", "seeds .1, 1.: .*each once"),
        ("seeds = 99999\narms.a = 'bert_r'", "seeds 99999: give how many, at most 1,000"),
        ("budget = 'euros=3'\narms.a = 'bert_r'", "budget 'euros=3': give tokens"),
        ("tune.share = 0.5\narms.a = 'bert_r'", r"\[tune\] names no setting"),
        (
            "tune.steps = [3]\narms.a = {recipe = 'bert_r', steps = 5}",
            "'a' gives steps twice, also as values or to tune",
        ),
        (
            "tune.steps = [3, 4]\narms.a = {recipe = 'bert_r', tune.learning_rate.peak = [0.1]}",
            "'a' tries 1 combinations, and .tune. 2; give as many",
        ),
    ],
)
def test_a_wrong_spec_is_one_line_with_its_file(written, text, message):
    with pytest.raises(ConfigError, match=message) as found:
        sweep(written(text))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[arm]\na = 'bert_r'", "there is no setting arm; did you mean arms"),
        ("[settings]\nsteps = 3", r"\[settings\] is of a sweep, which needs \[arms\] too"),
        ("model.widht = 3", "there is no setting model.widht; did you mean model.width"),
        ("model." + ".".join(["a"] * 3000) + " = 3", "there is no setting model.a"),
        ("model = 3", "model=3: input should be a valid dictionary"),
    ],
)
def test_a_spec_without_arms_is_one_line_with_its_file(written, text, message):
    file = written(text)
    for command in ("sweep", "train"):
        with pytest.raises(ConfigError, match=message) as found:
            main([command, str(file)])
        assert "\n" not in str(found.value)
        assert str(found.value).startswith(f"{file}: ") or "valid dictionary" in message


def test_a_spec_is_given_alone(written):
    with pytest.raises(ConfigError, match="theta_bar is a sweep, .*give it alone"):
        sweep("bert_r", "theta_bar")


def test_the_examples_of_the_documentation_and_of_the_help_are_sweeps(written):
    text = (Path(__file__).parents[4] / "docs/RUNNING.md").read_text()
    (example,) = [block for block in text.split("```toml\n")[1:] if "[arms]" in block]
    asked = sweep(written(example.partition("```")[0]), "--corpus", "text.txt")
    assert [arm.name for arm in asked.arms] == ["baseline", "post", "drop-0.5", "drop-0.9"]
    assert asked.spec.tuning.share == 0.5 and len(asked.spec.arms[0].points) == 3
    asked = sweep(written(sweep_command.__doc__.partition(".toml file:\n\n")[2]))
    assert [arm.name for arm in asked.arms] == ["baseline", "drop-0.5", "drop-0.9"]
