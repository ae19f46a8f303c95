"""The command line: `python -m finetune COMMAND`."""

from data_prep.manifest import ShardError
from data_prep.parallel import WorkerDied
from data_prep.tokenizer import TokenizerError
from finetune.tasks import TaskError
from pretrain.command_line import exit_with_one_line, run_command
from pretrain.config import ConfigError

COMMANDS = {
    "run": "finetune.run",
    "tasks": "finetune.task_list",
    "table": "finetune.table_command",
    "submission": "finetune.submission_command",
}


def main(words: list[str]) -> None:
    """Run one command; see `run_command`."""
    run_command("finetune", COMMANDS, words)


if __name__ == "__main__":
    exit_with_one_line(main, (ConfigError, ShardError, TaskError, TokenizerError, WorkerDied))
