import pytest

from pretrain.config.errors import ConfigError
from pretrain.launching.gpus import visible_gpus


@pytest.fixture
def machine(stubs, monkeypatch):
    """A machine with eight GPUs."""
    monkeypatch.setenv("PATH", str(stubs.bin), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    stubs.gpus(8)
    return stubs


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


def test_parts_of_gpus_are_refused(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")
    with pytest.raises(ConfigError, match="MIG-1,MIG-2: .* whole GPUs"):
        visible_gpus()


@pytest.mark.parametrize("listing", ["exit 9", "echo No devices were found; exit 6"])
def test_a_driver_without_a_gpu_is_a_cpu(machine, listing):
    machine.program("nvidia-smi", f"#!/usr/bin/env bash\n{listing}\n")
    assert visible_gpus() == []


def test_a_machine_without_a_driver_has_no_gpu(machine, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert visible_gpus() == []
