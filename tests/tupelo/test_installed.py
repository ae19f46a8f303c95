import subprocess
from pathlib import Path

from pretrain.commands.catalog import COMMANDS

ROOT = Path(__file__).parents[2]


def test_every_command_is_listed_with_what_it_does(installed):
    listed = installed.run("--help").stdout
    for name, command in COMMANDS.items():
        assert f"  {name}" in listed and command.summary in listed
    assert "finetune ..." in listed and "data ..." in listed


def test_a_copy_holds_every_file_that_is_not_code(installed):
    tracked = subprocess.run(
        ["git", "ls-files", "pretrain", "finetune", "data_prep", "ds_configs", "tupelo"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    (packages,) = (installed.programs.parent / "lib").glob("python*/site-packages")
    missing = {name for name in tracked.stdout.split() if not (packages / name).is_file()}
    assert missing == set()


def test_a_run_with_a_packaged_recipe_and_configuration_starts_outside_the_checkout(installed):
    run = installed.run("train", "tiny_cpu", "--dry-run", "--engine.ds_config", "zero0_fp32")
    assert "tokens per step" in run.stdout
