"""The end of one rank is the end of the job: in seconds, with one message that says why."""

from types import SimpleNamespace

import pytest
import torch

from data_prep.files.errors import UserError
from pretrain.config.errors import ConfigError
from pretrain.distributed.failures import failures_end_the_job, lost_process
from pretrain.distributed.ranks import Ranks, start_ranks
from tests.forked_command import run_module, start_module


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
    ],
)
def test_the_death_of_another_process_is_one_line(error, line):
    assert line in lost_process(RuntimeError(error))


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


def test_an_error_of_the_user_is_one_line_of_a_rank_too(monkeypatch, capsys):
    monkeypatch.setattr("os._exit", lambda _: None)
    ranks, interruption = Ranks(0, 2, "cpu"), SimpleNamespace(leave=lambda: None)
    with pytest.raises(UserError), failures_end_the_job(ranks, interruption):
        raise UserError("there is no such folder")
    assert capsys.readouterr().err == "\nerror: there is no such folder\n"


@pytest.mark.ranks
def test_machines_that_do_not_share_the_run_folder_are_refused(command, tmp_path):
    (tmp_path / "other").mkdir()
    words, places = command.words("--run-folder", "run"), (tmp_path, tmp_path / "other")
    status, _, errors = run_module("pretrain", words, 2, folder=places)
    assert status == 1 and errors.count("run must be on a disk that all machines share") == 1


def test_a_launcher_that_sets_a_part_of_the_variables_is_told_which(monkeypatch):
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    with pytest.raises(ConfigError, match="RANK is set, and not LOCAL_RANK"):
        start_ranks()


@pytest.mark.ranks
def test_a_rank_that_raises_ends_three_ranks_with_its_traceback_alone(command, tmp_path):
    """It raises outside of any collective, while the others wait for it in one."""
    words = command.words("--run-folder", tmp_path / "run", "--batch.global_sequences", "12")
    files = [(tmp_path / str(rank),) * 2 for rank in range(3)]
    module = "tests.pretrain.train.stability.run_with_fault"
    started = start_module(module, words, 3, files=files, FAULT="raise:1:7")
    assert started.wait(120) == [1, 1, 1]
    first, own, third = (file.read_text() for file, _ in files)
    assert own.count("rank 1 failed:\nTraceback (most recent call last):") == 1
    assert own.count("ValueError: a fault of this rank alone") == 1
    for other in (first, third):  # one line
        assert ": lost another rank (Connection " in other and "Traceback" not in other
