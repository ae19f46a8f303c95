"""Options of other programs lead to ours, which exist."""

import pytest

from data_prep.command_line import HABITS, CommandParser, run_command
from finetune.commands import run
from finetune.commands.catalog import COMMANDS as FINE_TUNING
from pretrain.commands import train
from pretrain.commands.catalog import COMMANDS
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import sections


def options_of(command):
    parser = CommandParser(allow_abbrev=False)
    command.add_arguments(parser)
    return set(parser._option_string_actions)


def test_what_a_habit_leads_to_exists():
    assert {option for found in HABITS.values() for option in found} <= (
        options_of(train) | options_of(run)
    )


def refusal(commands, *words):
    with pytest.raises(ConfigError) as caught:
        run_command(commands, words)
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["--lr", "1e-3"], "there is no --lr; use --learning_rate.peak"),
        (["--learning_rate=1e-3"], "there is no --learning_rate; use --learning_rate.peak"),
        (["--epochs", "3"], "there is no --epochs; use --steps or --hours"),
        (["--dropout", "0"], "there is no --dropout; use --model.dropout"),
        (["--num-layers", "3"], "there is no --num-layers; use --model.num_layers"),
        (["--every_steps", "5"], "use --evaluation.every_steps or --checkpoint.every_steps"),
        (["--model.with", "3"], "there is no --model.with; did you mean --model.width?"),
    ],
)
def test_an_option_of_other_programs_leads_to_the_setting(words, instead):
    assert instead in refusal(COMMANDS, "train", "tiny_cpu", *words)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["--learning_rate", "1e-5"], "there is no --learning_rate; use --learning_rates"),
        (["--seed", "1"], "there is no --seed; use --seeds"),
        (["--protocl", "tupe"], "did you mean --protocol?"),
    ],
)
def test_an_option_of_other_programs_leads_to_that_of_fine_tuning(words, instead):
    assert instead in refusal(FINE_TUNING, "run", "runs/x", *words)


def test_a_command_is_not_advised_to_use_what_it_lacks():
    assert "learning_rate" not in refusal(COMMANDS, "fill-mask", "run", "text", "--lr", "1")


def test_a_section_alone_is_no_option():
    for section in sections():
        with pytest.raises(ConfigError, match=f"there is no --{section}"):
            load_settings("tiny_cpu", [f"--{section}", "{}"])
