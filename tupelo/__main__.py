"""The command `tupelo`: those of pre-training, and those of data and fine-tuning as groups."""

from importlib import import_module

from data_prep.files.program import run_program

GROUPS = {
    "data": "build shards from text, and inspect, verify and repair them",
    "finetune": "fine-tune encoders on GLUE or a task of your own, and make tables",
}


def main(words: list[str]) -> int | None:
    """Run one command, and return its exit status if it has one of its own."""
    # Imported late: `run_program` reports a package that is not installed.
    from data_prep.command_line import run_command

    for group, package in (("data", "data_prep"), ("finetune", "finetune")):
        if words[:1] == [group]:
            commands = import_module(f"{package}.commands.catalog").COMMANDS
            return run_command(commands, words[1:], group=[group])
    if words == ["--version"]:
        import platform
        from importlib.metadata import version

        from tupelo import __version__

        packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "deepspeed"))
        print(f"tupelo {__version__} (Python {platform.python_version()}, {packages})")
    elif words in ([], ["-h"], ["--help"]):
        print(_overview())
    else:
        from pretrain.__main__ import main as pretrain_main

        pretrain_main(words, GROUPS)
    return None


def _overview() -> str:
    from data_prep.command_line import Command, overview
    from pretrain.commands.catalog import COMMANDS
    from tupelo import __doc__ as description

    sentence = description.partition("\n")[0]
    groups = {f"{name} ...": Command("", summary) for name, summary in GROUPS.items()}
    return f"{sentence}\n\n{overview({**COMMANDS, **groups})}"


def program() -> None:
    """Run the installed command."""
    run_program(main)


if __name__ == "__main__":
    program()
