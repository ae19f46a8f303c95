"""Plans: what they print follows from what they measured, and the commands do what they say."""

import json
import re
import shlex

import pytest

from data_prep.shards.format import open_shards
from pretrain.__main__ import main
from pretrain.commands.plan import add_arguments
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import CommandParser, load_settings
from pretrain.data.shards import existing_shards
from pretrain.distributed.ranks import Ranks
from pretrain.reports.words import amount
from pretrain.schedules.fitting import fitted
from pretrain.schedules.learning_rate import learning_rate_at
from pretrain.train.plan import commands, steps_within
from tests.pretrain.conftest import two_ranks

EXPONENTIAL = [
    *("--learning_rate.schedule", "warmup_linear_decay_exp"),
    *("--learning_rate.decay_rate", "0.9", "--learning_rate.decay_steps", "500"),
]


def planned(*words, seconds_per_step=0.5, world_size=1):
    """Return the arguments, the settings and the words of the two commands of a plan."""
    parser = CommandParser(allow_abbrev=False)
    add_arguments(parser)
    arguments = parser.parse_args(list(words))
    (name,) = arguments.recipe
    settings = load_settings(name, words[1:])
    text = commands(arguments, name, settings, seconds_per_step, Ranks(0, world_size, "cpu"))
    by_steps, by_hours = (shlex.split(line) for line in text.splitlines()[1::2])
    return arguments, settings, by_steps, by_hours


def settings_of(command):
    """Return the settings that a command of a plan trains with."""
    place = command.index("train")
    return load_settings(command[place + 1], command[place + 2 :])


def test_hours_are_divided_by_the_seconds_of_a_step():
    assert steps_within(load_settings("tiny_cpu", ["--hours", "24"]), 0.5) == 172_800
    assert steps_within(load_settings("tiny_cpu", ["--hours", "0.001"]), 7.0) == 1
    assert steps_within(load_settings("tiny_cpu"), 0.5) == 20


@pytest.mark.parametrize("steps", [5_000, 200_000, 3_000_000])
def test_a_fitted_exponential_decay_ends_where_the_recipes_does(steps):
    settings = load_settings("pld_base")
    rate = settings.learning_rate
    fit = rate.model_copy(
        update={"decay_steps": fitted(settings, steps)["learning_rate.decay_steps"]}
    )
    assert learning_rate_at(steps, fit, steps) == pytest.approx(1e-3 * 0.99**196, rel=0.01)


def test_the_command_of_a_plan_trains_the_planned_steps_with_the_given_settings():
    words = ("--seed", "7", "--optimizer.betas", "0.9,0.95", "--model.preset", "mini")
    _, settings, by_steps, by_hours = planned(
        "tiny_cpu", "--hours", "24", "--corpus", "a b", *words
    )
    assert by_steps[:3] == ["tupelo", "train", "tiny_cpu"]
    assert settings_of(by_steps) == settings.model_copy(update={"steps": 172_800, "hours": None})
    assert settings_of(by_hours) == settings


def test_decays_that_are_stated_in_steps_are_scaled_in_the_command_for_steps_only():
    drops = ("--layer_drop.schedule", "progressive", "--layer_drop.gamma", "0.01")
    words = ("tiny_cpu", "--steps", "2000", "--hours", "1", *drops, *EXPONENTIAL)
    _, settings, by_steps, by_hours = planned(*words)
    trained = settings_of(by_steps)
    assert trained.steps == 7200 and trained.hours is None
    assert trained.learning_rate.decay_steps == 1800
    assert trained.layer_drop.gamma == pytest.approx(0.01 * 2000 / 7200)
    assert settings_of(by_hours) == settings


def test_a_recipe_that_is_all_warm_up_can_be_planned():
    words = ("--steps", "1", "--learning_rate.warmup_ratio", "0.6", *EXPONENTIAL)
    settings = load_settings("tiny_cpu", words)
    assert fitted(settings, 1)["learning_rate.decay_steps"] == 500
    assert fitted(settings, 1000)["learning_rate.decay_steps"] == 500 * 400


def test_hours_in_the_recipe_are_taken_back_where_steps_are_given(tmp_path):
    (tmp_path / "mine.toml").write_text("hours = 2\n")
    _, settings, by_steps, by_hours = planned(str(tmp_path / "mine.toml"))
    assert settings_of(by_steps).hours is None and settings_of(by_steps).steps == 14_400
    assert settings_of(by_hours) == settings


def test_without_hours_the_recipe_is_trained_as_it_is():
    _, settings, by_steps, by_hours = planned("tupe_base", seconds_per_step=0.36)
    assert by_steps == ["tupelo", "train", "tupe_base"]
    assert settings_of(by_hours).hours == pytest.approx(100)


def test_on_several_ranks_the_command_starts_as_many():
    _, _, by_steps, _ = planned("tiny_cpu", "--hours", "1", world_size=8)
    assert by_steps[:6] == ["torchrun", "--nproc-per-node", "8", "-m", "pretrain", "train"]


def test_shards_are_missing_only_where_none_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert existing_shards(load_settings("tupe_base")) is None  # it brings no text
    assert existing_shards(load_settings("tiny_cpu")) is None  # not built yet
    with pytest.raises(ValueError, match="there are no shards in nowhere"):
        existing_shards(load_settings("tiny_cpu", ["--data.shards", "nowhere"]))


def plan_words(shards, *words):
    return ["plan", "tiny_cpu", "--data.shards", str(shards), "--engine.ds_config", "zero1_fp32",
            "--seconds", "2", *words]  # fmt: skip


def number(output, pattern):
    return float(re.search(pattern, output)[1].replace(",", ""))


def check_numbers(output, shards_rows):
    seconds = number(output, r"seconds per step +([\d.e-]+);")
    steps = number(output, r"allow +([\d,]+) steps")
    assert steps == pytest.approx(0.1 * 3600 / seconds, rel=1e-3)  # printed with four digits
    assert number(output, r"tokens/s +([\d,]+)") == pytest.approx(8 * 32 / seconds, rel=1e-3)
    passes = number(output, r"passes over the text +([\d.e+]+) ")
    assert passes == pytest.approx(steps * 8 / shards_rows, rel=0.01)
    assert number(output, r"warm-up +([\d,]+) steps, to 0.001") == round(0.1 * steps)
    assert f"--steps {steps:.0f} " in output and "--hours 0.1 " in output


def test_a_plan_prints_numbers_that_follow_from_each_other(command, shards):
    drops = ("--layer_drop.schedule", "progressive")
    status, output, errors = command.run(plan_words(shards, "--hours", "0.1", *drops))
    assert status == 0, errors[-3000:]
    printed = re.search(r"tupelo (train .*--steps .*)", output)[1]
    output = " ".join(output.split())
    check_numbers(output, open_shards(shards).split("train").num_rows)
    assert f"real ones, from the shards in {shards}" in output
    assert "hours of this machine" in output and "are kept, of 746.6 KiB each" in output
    assert "a start would be refused" not in output
    # 0.5 + 0.5 exp(-5 n) after n of 20 steps; 2 - 3 (1 - theta) / 2 blocks
    assert "1.29 expected: coins at theta 0.525, its mean over the run" in output
    # the printed command is one that the trainer takes
    status, _, errors = command.run([*shlex.split(printed), "--dry-run"])
    assert status == 0, errors[-3000:]


def test_several_recipes_are_planned_as_a_table(command, shards, tmp_path):
    """The numbers of the file are those of the table, and steps x seconds per step is the time."""
    wide, numbers = tmp_path / "wide.toml", tmp_path / "speeds.json"
    wide.write_text('extends = "tiny_cpu"\nsteps = 40000\nmodel.feedforward_width = 256\n')
    words = plan_words(shards, "--json", numbers, "--seconds", "0.1")
    words.insert(2, str(wide))
    status, output, errors = command.run(words)
    assert status == 0, errors[-3000:]
    speeds = json.loads(numbers.read_text())
    per_step = speeds["seconds_per_step"]
    assert list(per_step) == ["tiny_cpu", str(wide)]
    assert speeds["measured_seconds"] > 0
    rows = [row for row in output.splitlines() if " 20 " in row or " 40,000 " in row]
    for row, seconds, steps in zip(rows, per_step.values(), (20, 40_000), strict=True):
        assert f"{seconds:.4g}" in row and row.endswith(amount(steps * seconds, "training_seconds"))


def test_numbers_that_cannot_be_written_are_one_line(command, shards, tmp_path):
    file = tmp_path / "absent" / "speeds.json"
    status, _, errors = command.run(plan_words(shards, "--json", file, "--seconds", "0.1"))
    assert status == 1
    line = f"error: cannot write {file}: No such file or directory; choose another --json"
    assert errors.splitlines()[-1] == line


def test_a_plan_says_what_a_start_would_refuse(command, shards, tmp_path):
    words = plan_words(shards, "--data.shards", "none", "--corpus", str(tmp_path / "nowhere"))
    status, output, errors = command.run(words)
    assert status == 0, errors[-3000:]
    assert f"note: a start would be refused: {tmp_path / 'nowhere'}: no such file" in output


@pytest.mark.slow("two ranks measure like one")
@pytest.mark.ranks
def test_two_ranks_plan_together_without_shards(command, tmp_path):
    words = ["plan", "tiny_cpu", "--corpus", str(tmp_path), "--engine.ds_config", "zero1_fp32",
             "--seconds", "1", "--batch.micro_sequences", "4"]  # fmt: skip
    status, output, errors = command.run(words, launcher=two_ranks("torchrun"))
    assert status == 0, errors[-3000:]
    assert output.count(" optimizer steps in ") == 1 and "2 rank(s)" in output
    assert "random ids; there are no shards yet" in output
    assert "20 steps take" in output and "torchrun --nproc-per-node 2 -m pretrain" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seconds", "0"], "--seconds 0: give a number above 0, such as 60"),
        (["--seconds", "nan"], "--seconds nan: give a number above 0"),
        (["--hours", "0"], "hours='0': input should be greater than 0"),
        (["--hours", "-1"], "hours='-1': input should be greater than 0"),
        (["--hours", "day"], "hours='day': input should be a valid number"),
        (["--hours", "inf"], "hours='inf': input should be a finite number"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_one_line(command, shards, words, message):
    status, _, errors = command.run(plan_words(shards, *words))
    assert status == 1
    assert message in errors and len(errors.strip().splitlines()) == 1


def test_a_plan_for_other_gpus_is_a_dry_run():
    with pytest.raises(ConfigError, match="this measures here; .*train tiny_cpu --dry-run --on 8x"):
        main(["plan", "tiny_cpu", "--on", "8xA100-SXM4-80GB"])
