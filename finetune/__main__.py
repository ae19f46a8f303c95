"""The command line: `python -m finetune COMMAND`."""

from data_prep.files.program import run_program


def main(words: list[str]) -> None:
    """Run one command; see `run_command`."""
    # Imported late: `run_program` reports a package that is not installed.
    from finetune.commands.catalog import COMMANDS
    from pretrain.commands.command_line import run_command

    run_command(COMMANDS, words, group=["finetune"])


if __name__ == "__main__":
    run_program(main)
