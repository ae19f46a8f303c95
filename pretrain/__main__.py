"""The command line: `python -m pretrain COMMAND`, under torchrun and deepspeed too."""

from data_prep.files.workers import WorkerDied
from data_prep.shards.manifest import ShardError
from data_prep.sources.source import CorpusError
from data_prep.tokenizer.describe import TokenizerError
from pretrain.commands.command_line import exit_with_one_line, run_command
from pretrain.config.errors import AnomalyError, ConfigError
from pretrain.config.habits import HABITS

COMMANDS = {
    "doctor": "pretrain.commands.doctor",
    "prepare": "pretrain.commands.prepare",
    "plan": "pretrain.commands.plan",
    "train": "pretrain.commands.train",
    "profile": "pretrain.commands.profile",
    "compare": "pretrain.commands.compare",
    "fill-mask": "pretrain.commands.fill_mask",
    "export": "pretrain.commands.export",
    "import": "pretrain.commands.import_model",
}
LAUNCHER_OPTIONS = ("--local_rank=", "--local-rank=")  # the deepspeed launcher puts one in front


def main(words: list[str]) -> None:
    """Run one command; see `run_command`."""
    words = [word for word in words if not word.startswith(LAUNCHER_OPTIONS)]
    run_command("pretrain", COMMANDS, words, habits=HABITS)


if __name__ == "__main__":
    exit_with_one_line(
        main,
        (ConfigError, CorpusError, ShardError, TokenizerError, AnomalyError, WorkerDied),
    )
