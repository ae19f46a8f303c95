"""The command line of the packages: `python -m PACKAGE COMMAND`, and errors in one line."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from pretrain.config.errors import ConfigError, nearest
from pretrain.config.recipe import CommandParser


def run_command(
    package: str,
    commands: Mapping[str, str],
    words: Sequence[str],
    *,
    habits: Mapping[str, str],
) -> None:
    """Run one command.

    Args:
        package: that the user has called.
        commands: name -> module with add_arguments(parser) and main(arguments); it is imported
            only when its command is used.
        words: of the user.
        habits: what to use instead of options of other programs; see `CommandParser`.

    Raises:
        ConfigError: there is no such command, or what the command itself raises.
    """
    if not words or words[0] in ("-h", "--help"):
        print(f"usage: python -m {package} {{{','.join(commands)}}} ...   (each has --help)")
        return
    if words[0] not in commands:
        known = list(commands)
        raise ConfigError(
            f"there is no command {words[0]!r}{nearest(words[0], known)}; one of {', '.join(known)}"
        )
    module = importlib.import_module(commands[words[0]])
    parser = CommandParser(
        prog=f"python -m {package} {words[0]}",
        description=module.__doc__,
        allow_abbrev=False,
        habits=habits,
    )
    module.add_arguments(parser)
    module.main(parser.parse_args(words[1:]))


def exit_with_one_line(
    main: Callable[[list[str]], None], errors: tuple[type[Exception], ...]
) -> None:
    """Run a program; an error that is the user's to fix ends it with one line.

    Raises:
        SystemExit: it failed.
    """
    try:
        main(sys.argv[1:])
    except errors as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader, such as head, is gone; Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
