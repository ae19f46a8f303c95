"""The end of one rank is the end of the job: in seconds, with one message that says why."""

import time
from types import SimpleNamespace

import pytest
import torch

from pretrain.config.errors import ConfigError
from pretrain.distributed.failures import failures_end_the_job, lost_process
from pretrain.distributed.ranks import Ranks
from tests.pretrain.conftest import two_ranks
from tests.pretrain.distributed.test_signals import ranks_of, wait_for_step

FAR = 1_000_000


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
            "[127.0.0.1]:18531",
            "lost another rank (Connection closed by peer); what it printed before it ended",
        ),
        (
            "NCCL error ... ncclRemoteError: A call failed possibly due to a network error",
            "lost another rank (ncclRemoteError)",
        ),
        (
            "DataLoader worker (pid 4711) is killed by signal: Killed. ",
            "died (DataLoader worker (pid 4711) is killed by signal: Killed)",
        ),
        ("DataLoader worker (pid(s) 4711, 4712) exited unexpectedly", "exited unexpectedly)"),
        (ConnectionResetError(104, "Connection reset by peer"), "died (ConnectionResetError)"),
        (EOFError(), "a loader worker died (EOFError)"),
    ],
)
def test_the_death_of_another_process_is_one_line(error, line):
    assert line in lost_process(RuntimeError(error) if isinstance(error, str) else error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at gloo/transport/tcp/pair.cc:446] op.preamble.length"),
        RuntimeError("shape '[3]' is invalid for input of size 4"),
        ValueError("Connection closed by peer"),
        BrokenPipeError(32, "Broken pipe"),
    ],
)
def test_an_error_of_this_rank_keeps_its_traceback(error):
    assert lost_process(error) is None


def test_a_gpu_whose_memory_runs_out_is_one_line_with_what_to_do():
    """torch's own line is followed by advice on its allocator, of a few hundred letters."""
    complaint = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.6"
    interruption = SimpleNamespace(leave=lambda: None)
    with (
        pytest.raises(ConfigError, match="smaller --batch.micro_sequences") as raised,
        failures_end_the_job(Ranks(0, 1, "cuda"), interruption),
    ):
        raise torch.OutOfMemoryError(complaint + " GiB." * 100 + "\nand more")
    message = str(raised.value)
    assert message.startswith(complaint) and "\n" not in message and len(message) < 400


@pytest.mark.ranks
def test_a_rank_that_raises_ends_three_ranks_with_its_traceback_alone(command, tmp_path):
    """It raises outside of any collective, while the others wait for it in one."""
    words = command.words("--run-folder", tmp_path / "run", "--steps", FAR)
    words += ["--batch.global_sequences", "12"]
    launcher = two_ranks("torchrun", "tests.pretrain.stability.run_with_fault")
    launcher = [word.replace("per-node=2", "per-node=3") for word in launcher]
    process = command.start(words, launcher, FAULT="raise:1:7")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    own = errors.partition("torch.distributed.elastic")[0]
    assert own.count("rank 1 failed:\nTraceback (most recent call last):") == 1
    assert own.count("ValueError: a fault of this rank alone") == 1
    assert errors.count(": lost another rank (Connection ") == 2
    assert errors.count("in failures_end_the_job") == 1  # the others print no traceback


@pytest.mark.slow("starts the deepspeed launcher; three ranks of torchrun are tested below")
@pytest.mark.ranks
def test_a_rank_that_is_killed_ends_the_deepspeed_job_in_seconds(command, tmp_path):
    folder = tmp_path / "run"
    words = command.words("--run-folder", folder, "--steps", FAR)
    process = command.start(words, two_ranks("deepspeed"))
    wait_for_step(process, folder, 5)
    ranks_of(process, folder)[1].kill()
    since = time.monotonic()
    _, errors = process.communicate(timeout=300)
    assert time.monotonic() - since < 25  # the launcher would wait for 30 before it kills
    assert process.returncode != 0
    assert errors.count("rank 0: lost another rank (Connection ") == 1
    assert "Traceback" not in errors
