"""Options that do not exist lead to those that do."""

import pytest

from data_prep.command_line import run_command
from finetune.commands.catalog import COMMANDS as FINE_TUNING
from pretrain.commands.catalog import COMMANDS
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import sections


def refusal(commands, *words):
    with pytest.raises(ConfigError) as caught:
        run_command(commands, words)
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["--dropout", "0"], "there is no --dropout; use --model.dropout"),
        (["--num-layers", "3"], "there is no --num-layers; use --model.num_layers"),
        (["--every_steps", "5"], "use --evaluation.every_steps or --checkpoint.every_steps"),
        (["--model.with", "3"], "there is no --model.with; did you mean --model.width?"),
    ],
)
def test_an_option_of_another_spelling_leads_to_the_setting(words, instead):
    assert instead in refusal(COMMANDS, "train", "tiny_cpu", *words)


def test_an_option_that_is_misspelled_leads_to_that_of_fine_tuning():
    assert "did you mean --protocol?" in refusal(FINE_TUNING, "run", "runs/x", "--protocl", "tupe")


def test_a_section_alone_is_no_option():
    for section in sections():
        with pytest.raises(ConfigError, match=f"there is no --{section}"):
            load_settings("tiny_cpu", [f"--{section}", "{}"])
