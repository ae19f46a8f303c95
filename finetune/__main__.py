"""The command line: `python -m finetune COMMAND`."""

from data_prep.files.workers import WorkerDied
from data_prep.shards.manifest import ShardError
from data_prep.tokenizer.describe import TokenizerError
from finetune.commands.habits import HABITS
from finetune.tasks.task import TaskError
from pretrain.commands.command_line import exit_with_one_line, run_command
from pretrain.config.errors import ConfigError

COMMANDS = {
    "run": "finetune.commands.run",
    "tasks": "finetune.commands.tasks",
    "table": "finetune.commands.table",
    "submission": "finetune.commands.submission",
}


def main(words: list[str]) -> None:
    """Run one command; see `run_command`."""
    run_command("finetune", COMMANDS, words, habits=HABITS)


if __name__ == "__main__":
    exit_with_one_line(main, (ConfigError, ShardError, TaskError, TokenizerError, WorkerDied))
