from pretrain.doctor.compilers import compiler
from tests.pretrain.doctor.conftest import WITH_GPUS


def test_a_gpu_machine_without_a_compiler_is_warned_with_the_package(machine):
    bare = {"PATH": str(machine.root / "bin")}
    found = compiler(machine.context(accelerators=WITH_GPUS, environment=bare))
    assert found.status == "warning" and found.fix == "install the package gcc"
    assert "there is no gcc on the PATH: no Triton kernel can start" in found.message
    assert compiler(machine.context(environment=bare)).status == "ok"


def test_this_machine_has_what_triton_needs(machine):
    named = {"CC": "sh", "PATH": "/bin"}  # any program that exists
    found = compiler(machine.context(accelerators=WITH_GPUS, environment=named))
    assert "gcc" not in found.message
