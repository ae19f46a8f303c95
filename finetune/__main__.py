"""The command line: `python -m finetune COMMAND`."""

import importlib
import os
import sys

from data_prep.manifest import ShardError
from data_prep.parallel import WorkerDied
from data_prep.tokenizer import TokenizerError
from finetune.tasks import TaskError
from pretrain.config import ConfigError, nearest
from pretrain.recipe import CommandParser

# Command -> module with add_arguments(parser) and main(arguments). Imported only when asked for.
COMMANDS = {
    "run": "finetune.run",
    "tasks": "finetune.task_list",
    "table": "finetune.table_command",
    "submission": "finetune.submission_command",
}


def main(words: list[str]) -> None:
    """Run one command.

    Raises:
        ConfigError: there is no such command, or what the command itself raises.
    """
    if not words or words[0] in ("-h", "--help"):
        print(f"usage: python -m finetune {{{','.join(COMMANDS)}}} ...   (each has --help)")
        return
    if words[0] not in COMMANDS:
        known = list(COMMANDS)
        raise ConfigError(
            f"there is no command {words[0]!r}{nearest(words[0], known)}; one of {', '.join(known)}"
        )
    module = importlib.import_module(COMMANDS[words[0]])
    parser = CommandParser(
        prog=f"python -m finetune {words[0]}", description=module.__doc__, allow_abbrev=False
    )
    module.add_arguments(parser)
    module.main(parser.parse_args(words[1:]))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ConfigError, ShardError, TaskError, TokenizerError, WorkerDied) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader, such as head, is gone; Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
