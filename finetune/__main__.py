"""The command line: `python -m finetune COMMAND`."""

from data_prep.files.program import run_program


def main(words: list[str]) -> None:
    """Run one command; see `run_command`."""
    # Imported late: `run_program` reports a package that is not installed.
    from data_prep.command_line import run_command
    from finetune.commands.catalog import COMMANDS

    run_command(COMMANDS, words, group=["finetune"])


if __name__ == "__main__":
    run_program(main)
