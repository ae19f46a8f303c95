"""The command line: `python -m pretrain COMMAND`, under torchrun and deepspeed too."""

import os
import signal
from collections.abc import Iterable

from data_prep.files.program import run_program
from pretrain.distributed.processes import is_launched

LAUNCHER_OPTIONS = ("--local_rank=", "--local-rank=")  # the deepspeed launcher puts one in front


def main(words: list[str], others: Iterable[str] = ()) -> None:
    """Run one command; `others` as of `run_command`."""
    # Imported late: `run_program` reports a package that is not installed.
    from data_prep.command_line import run_command
    from pretrain.commands.catalog import COMMANDS

    if is_launched():
        # Blocked in the launcher, and so far in its ranks: see `Child`.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGUSR1))
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)  # of the launcher: `import_deepspeed`
    words = [word for word in words if not word.startswith(LAUNCHER_OPTIONS)]
    run_command(COMMANDS, words, others=others)


if __name__ == "__main__":
    run_program(main)
