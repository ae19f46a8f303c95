"""Which GPUs a process may use, with a program in place of nvidia-smi."""

import os
import subprocess
import sys

import pytest
import torch

from pretrain.config.errors import ConfigError
from pretrain.distributed import gpus, ranks
from pretrain.distributed.gpus import ask_driver, visible_gpus
from pretrain.distributed.ranks import start_ranks
from pretrain.distributed.unusable_gpus import refuse_unusable_gpus


class Machine:
    """A folder on the PATH with an nvidia-smi."""

    def __init__(self, folder):
        self.program = folder / "nvidia-smi"

    def answers(self, *lines, status=0):
        echoed = "".join(f"echo '{line}'\n" for line in lines)
        self.runs(f"{echoed}exit {status}")

    def runs(self, script):
        self.program.write_text(f"#!/bin/sh\n{script}\n")
        self.program.chmod(0o755)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with eight GPUs."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = Machine(tmp_path)
    found.answers(*(f"{n}, GPU-{n}a{n}, NVIDIA H200, 580.1" for n in range(8)))
    return found


@pytest.fixture
def cpu_torch(monkeypatch):
    """A torch that sees no GPU, and is built for CUDA 13.0."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")


def test_without_the_variable_all_gpus_are_visible(machine):
    assert visible_gpus() == [str(number) for number in range(8)]


@pytest.mark.parametrize(
    ("variable", "visible"),
    [
        ("4,5", ["4", "5"]),
        (" 5, 4 ", ["5", "4"]),
        ("", []),
        ("-1", []),
        ("GPU-3a3,0", ["3", "0"]),
        ("GPU-3", ["3"]),
        ("0,9,1", ["0"]),  # CUDA stops at the first that does not exist
        ("GPU-,1", []),  # so many begin like it
    ],
)
def test_the_variable_chooses_gpus_as_cuda_reads_it(machine, monkeypatch, variable, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == visible


@pytest.mark.parametrize("variable", ["MIG-1,MIG-2", "0,MIG-1"])
def test_several_parts_of_gpus_are_refused(machine, monkeypatch, variable):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with pytest.raises(ConfigError, match=f"{variable}: name one part"):
        visible_gpus()


def test_one_part_of_a_gpu_is_one_gpu(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-5f3a")
    assert visible_gpus() == ["MIG-5f3a"]


@pytest.mark.parametrize("line", ["NVIDIA-SMI has failed", "No devices were found"])
def test_a_driver_without_a_gpu_is_a_cpu(machine, cpu_torch, line):
    machine.answers(line, status=9)
    assert visible_gpus() == [] and ask_driver() == ()
    refuse_unusable_gpus()


def test_a_machine_without_a_driver_has_no_gpu(machine, cpu_torch, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert visible_gpus() == [] and ask_driver() == ()
    refuse_unusable_gpus()


def test_an_nvidia_smi_that_hangs_does_not_hang_a_run(machine, cpu_torch, monkeypatch):
    machine.runs("exec sleep 60")
    monkeypatch.setattr(gpus, "ANSWER_SECONDS", 0.2)
    refuse_unusable_gpus()
    assert ask_driver() == ()


@pytest.mark.parametrize(
    ("cuda", "part"), [("13.0", "built for CUDA 13.0, sees none of"), (None, "built for CPUs")]
)
def test_a_run_refuses_gpus_that_torch_cannot_use(machine, cpu_torch, monkeypatch, cuda, part):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(ConfigError, match=part) as raised:
        start_ranks()
    message = str(raised.value)
    assert "8 NVIDIA GPU(s) (NVIDIA H200, driver 580.1)" in message and "\n" not in message
    assert message.endswith("to use the CPU: export CUDA_VISIBLE_DEVICES=")


def test_torch_goes_on_asking_cuda_and_not_the_driver_after_deepspeed():
    """Which would make it count GPUs that this torch cannot use."""
    variable = "PYTORCH_NVML_BASED_CUDA_CHECK"
    load = "import os, pretrain.distributed.deepspeed_library as it; it.import_deepspeed()"
    code = f"{load}; assert os.environ['{variable}'] == '0'"
    kept = {name: value for name, value in os.environ.items() if name != variable}
    subprocess.run([sys.executable, "-c", code], env=kept, check=True)


@pytest.mark.parametrize("variable", ["", "-1", "8", "NoDevFiles"])
def test_gpus_that_the_variable_hides_are_not_missed(machine, cpu_torch, monkeypatch, variable):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    refuse_unusable_gpus()


def test_a_rank_without_a_gpu_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(ranks, "import_deepspeed", lambda: None)  # it would stay on CUDA
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ConfigError, match="rank 1 of this machine has no GPU: torch sees 1"):
        start_ranks()
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: torch.zeros(1) @ torch.zeros(2))
    with pytest.raises(ConfigError, match="^GPU 0 fails .*; to use the CPU: export CUDA_V"):
        start_ranks()
