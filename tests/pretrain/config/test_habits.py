"""Options of other programs lead to ours, which exist."""

import pytest

from finetune.commands import run
from finetune.commands.catalog import COMMANDS as FINE_TUNING
from finetune.commands.habits import HABITS as FINE_TUNING_HABITS
from pretrain.commands import train
from pretrain.commands.catalog import COMMANDS
from pretrain.commands.command_line import run_command
from pretrain.config.errors import ConfigError
from pretrain.config.habits import HABITS
from pretrain.config.recipe import OPTION, CommandParser, load_settings
from pretrain.config.settings import sections


def options_of(command):
    parser = CommandParser(allow_abbrev=False)
    command.add_arguments(parser)
    return set(parser._option_string_actions)


@pytest.mark.parametrize(("habits", "command"), [(HABITS, train), (FINE_TUNING_HABITS, run)])
def test_what_a_habit_leads_to_exists_and_what_it_replaces_does_not(habits, command):
    options = options_of(command)
    for name, instead in habits.items():
        assert name == name.lower() and "_" not in name and not name.startswith("-")
        assert set(OPTION.findall(instead)) <= options, instead
        assert f"--{name}" not in options and f"--{name.replace('-', '_')}" not in options, name


def refusal(commands, habits, *words):
    with pytest.raises(ConfigError) as caught:
        run_command(commands, words, habits=habits)
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["--lr", "1e-3"], "there is no --lr; use --learning_rate.peak"),
        (["--learning_rate=1e-3"], "there is no --learning_rate; use --learning_rate.peak"),
        (["--batch_size", "8"], "there is no --batch_size; use --batch.global_sequences"),
        (["-o", "runs/x"], "there is no -o; use --run-folder"),
        (["--epochs", "3"], "there is no --epochs; use --steps or --hours"),
        (["--warmup", "0.1"], "use --learning_rate.warmup_ratio, a share of the steps"),
        (["--dropout", "0"], "there is no --dropout; use --model.dropout"),
        (["--num-layers", "3"], "there is no --num-layers; use --model.num_layers"),
        (["--max_seq_length", "64"], "use --data.sequence_length"),
        (["--bf16"], "there is no --bf16; use --engine.ds_config, whose JSON"),
        (["--data", "texts/"], "there is no --data; use --corpus"),
        (["--optimizer", "muon"], "there is no --optimizer; use --optimizer.kind"),
        (["--checkpoint", "x"], "use the folder of the run as RECIPE, with --resume"),
        (["--every_steps", "5"], "use --evaluation.every_steps or --checkpoint.every_steps"),
        (["--arms", "2"], "use the command sweep"),
        (["--model.with", "3"], "there is no --model.with; did you mean --model.width?"),
    ],
)
def test_habits_of_pre_training_lead_to_the_right_setting(words, instead):
    assert instead in refusal(COMMANDS, HABITS, "train", "tiny_cpu", *words)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["--lr", "1e-5"], "there is no --lr; use --learning-rates"),
        (["--learning_rate", "1e-5"], "there is no --learning_rate; use --learning-rates"),
        (["--seed", "1"], "there is no --seed; use --seeds, the number of trials"),
        (["--epoch", "3"], "use --epochs"),
        (["--batch-size", "8"], "use --batch"),
        (["--bs=8"], "there is no --bs; use --batch"),
        (["--model", "runs/x"], "use its folder or name without an option, in front of --tasks"),
        (["--output_dir", "x"], "use --to"),
        (["--data-dir", "glue"], "use --glue FOLDER with --tasks, or --train FILE"),
        (["--protocl", "tupe"], "did you mean --protocol?"),
    ],
)
def test_habits_of_fine_tuning_lead_to_the_right_option(words, instead):
    assert instead in refusal(FINE_TUNING, FINE_TUNING_HABITS, "run", "runs/x", *words)


def test_a_command_is_not_advised_to_use_what_it_lacks():
    assert "learning_rate" not in refusal(COMMANDS, HABITS, "fill-mask", "run", "text", "--lr", "1")


def test_a_section_alone_is_no_option():
    for section in sections():
        with pytest.raises(ConfigError, match=f"there is no --{section}"):
            load_settings("tiny_cpu", [f"--{section}", "{}"])
