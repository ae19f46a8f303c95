"""The command line: `python -m data_prep COMMAND`."""

from data_prep.files.program import run_program


def main(words: list[str]) -> int:
    """Run one command and return its exit status; see `commands.main`."""
    # Imported late: `run_program` reports a package that is not installed.
    from data_prep.commands import main as run

    return run(words)


if __name__ == "__main__":
    run_program(main)
