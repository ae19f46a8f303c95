"""The command line: `python -m data_prep COMMAND`."""

from data_prep.files.program import run_program


def main(words: list[str]) -> int | None:
    """Run one command, and return its exit status; see `run_command`."""
    # Imported late: `run_program` reports a package that is not installed.
    from data_prep.command_line import run_command
    from data_prep.commands.catalog import COMMANDS

    return run_command(COMMANDS, words, group=["data"])


if __name__ == "__main__":
    run_program(main)
