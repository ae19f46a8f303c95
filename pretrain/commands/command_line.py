"""The command line of the packages: a table of commands, each in a module of its own."""

import argparse
import importlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from data_prep.files.program import shell_command
from pretrain.config.errors import ConfigError, nearest
from pretrain.config.recipe import CommandParser

HELP = ("-h", "--help")


class Paragraphs(argparse.RawDescriptionHelpFormatter):
    """Fits paragraphs to the width of the terminal; indented lines, examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            textwrap.indent(block, indent)
            if "\n " in f"\n{block}"
            else textwrap.fill(block, width, initial_indent=indent, subsequent_indent=indent)
            for block in text.strip("\n").split("\n\n")
        )


class Command(NamedTuple):
    """A command: where it is, and what it does."""

    module: str  # with add_arguments(parser) and main(arguments); imported when it is used
    summary: str  # what it does, in a line


def run_command(
    commands: Mapping[str, Command],
    words: Sequence[str],
    *,
    group: Sequence[str] = (),
) -> None:
    """Run one command, or list all of them if there are no words or --help.

    Args:
        commands: by name.
        words: of the user.
        group: the words of `tupelo` before the command, such as "finetune".

    Raises:
        ConfigError: there is no such command, or what the command itself raises.
    """
    if not words or words[0] in HELP:
        print(overview(commands, group=group))
        return
    if words[0] not in commands:
        known = list(commands)
        raise ConfigError(
            f"there is no command {words[0]!r}{nearest(words[0], known)}; one of {', '.join(known)}"
        )
    module = importlib.import_module(commands[words[0]].module)
    parser = CommandParser(
        prog=shell_command(*group, words[0]),
        description=module.__doc__,
        formatter_class=Paragraphs,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    # Help last: it shows the values of the recipe that is named.
    module.main(parser.parse_args(sorted(words[1:], key=HELP.__contains__)))


def overview(commands: Mapping[str, Command], *, group: Sequence[str] = ()) -> str:
    """Return the usage and a line for every command."""
    width = max(map(len, commands))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in commands.items()]
    usage = f"usage: {shell_command(*group)} COMMAND ...   (COMMAND --help explains its options)"
    return "\n".join((usage, "", *lines))
