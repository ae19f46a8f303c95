import torch

from pretrain.doctor.compilers import compiler
from tests.pretrain.doctor.conftest import WITH_GPUS


def test_a_gpu_machine_without_a_compiler_is_warned_with_the_package(machine):
    bare = {"PATH": str(machine.root / "bin")}
    found = compiler(machine.context(accelerators=WITH_GPUS, environment=bare))
    assert found.status == "warning" and found.fix == "install the package gcc"
    assert "there is no gcc on the PATH: no Triton kernel can start" in found.message


def test_this_machine_has_what_triton_needs(machine):
    named = {"CC": "sh", "PATH": "/bin"}  # any program that exists
    found = compiler(machine.context(accelerators=WITH_GPUS, environment=named))
    assert "gcc" not in found.message


def test_a_cpu_without_a_compiler_is_warned_that_it_has_no_kernels(machine, monkeypatch):
    monkeypatch.setattr("pretrain.kernels.cpu_kernels.VECTOR_FLAGS", {"OTHER": ()})
    assert compiler(machine.context()).status == "ok"  # no compiler would help
    supported = torch.backends.cpu.get_cpu_capability()
    monkeypatch.setattr("pretrain.kernels.cpu_kernels.VECTOR_FLAGS", {supported: ()})
    assert "g++" in compiler(machine.context()).message
    monkeypatch.setenv("PATH", str(machine.root))
    found = compiler(machine.context())
    assert (found.status, found.fix) == ("warning", "install the package g++")
    assert "there is no g++ to compile them" in found.message
