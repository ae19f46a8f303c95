"""The command line: `python -m pretrain COMMAND`, under torchrun and deepspeed too."""

from data_prep.manifest import ShardError
from data_prep.parallel import WorkerDied
from data_prep.sources.source import CorpusError
from data_prep.tokenizer import TokenizerError
from pretrain.command_line import exit_with_one_line, run_command
from pretrain.config import ConfigError
from pretrain.trouble import TroubleError

COMMANDS = {
    "doctor": "pretrain.doctor",
    "prepare": "pretrain.prepare",
    "plan": "pretrain.plan",
    "train": "pretrain.train",
    "profile": "pretrain.profile_step",
    "compare": "pretrain.compare",
    "fill-mask": "pretrain.fill_mask",
    "export": "pretrain.export",
    "import": "pretrain.import_weights",
}
LAUNCHER_OPTIONS = ("--local_rank=", "--local-rank=")  # the deepspeed launcher puts one in front


def main(words: list[str]) -> None:
    """Run one command; see `run_command`."""
    words = [word for word in words if not word.startswith(LAUNCHER_OPTIONS)]
    run_command("pretrain", COMMANDS, words)


if __name__ == "__main__":
    exit_with_one_line(
        main,
        (ConfigError, CorpusError, ShardError, TokenizerError, TroubleError, WorkerDied),
    )
