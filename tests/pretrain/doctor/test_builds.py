import os
from pathlib import Path

import pytest
from torch.utils.file_baton import FileBaton

from pretrain.doctor.builds import build_locks, compilers, operations, triton_cache
from tests.pretrain.doctor.conftest import WITH_GPUS


def nothing_compiled():
    return {"fused_adam": False, "cpu_adam": False}


def adam_compiled():
    return {"fused_adam": True, "cpu_adam": False}


def test_a_cpu_is_faster_with_a_compiler(machine):
    found = compilers(machine.surroundings(), compiled=nothing_compiled)
    assert found.mark == "warning" and found.found.startswith("no compiler, but no g++")
    assert found.fix == "apt install g++"
    machine.command("g++")
    assert compilers(machine.surroundings(), compiled=nothing_compiled).mark == "ok"


def test_what_a_gpu_lacks_to_compile_adam_is_asked_for_in_turn(machine):
    def look():
        return compilers(
            machine.surroundings(accelerators=WITH_GPUS, environment=environment),
            compiled=nothing_compiled,
        )

    environment = {"CUDA_HOME": str(machine.root / "cuda")}
    assert look().mark == "problem" and "apt install g++" in look().fix
    machine.command("c++")
    assert "no ninja" in look().found and "pip install ninja" in look().fix
    machine.command("ninja")
    assert "no nvcc" in look().found and "CUDA toolkit 13.0" in look().fix
    machine.command("nvcc", "echo 'release 12.8, V12.8.9'", folder="cuda/bin")
    assert "nvcc release 12.8" in look().found and look().mark == "problem"
    assert "--optimizer.kind torch" in look().fix
    machine.command("nvcc", "echo 'release 13.0, V13.0.1'", folder="cuda/bin")
    assert look().mark == "ok" and "release 13.0" in look().found


def test_without_cuda_home_the_nvcc_on_the_path_counts(machine):
    for name, script in (("c++", ""), ("ninja", ""), ("nvcc", "echo release 13.0")):
        machine.command(name, script)
    found = compilers(machine.surroundings(accelerators=WITH_GPUS), compiled=nothing_compiled)
    assert found.mark == "ok"


def test_an_adam_that_was_compiled_with_deepspeed_needs_nothing(machine):
    surroundings = machine.surroundings(accelerators=WITH_GPUS)
    assert compilers(surroundings, compiled=adam_compiled).mark == "ok"
    assert (
        "compiled with DeepSpeed: fused_adam"
        in operations(surroundings, compiled=adam_compiled).found
    )


def test_operations_of_an_earlier_start_are_found(machine):
    surroundings = machine.surroundings(accelerators=WITH_GPUS)
    assert "first start compiles" in operations(surroundings, compiled=nothing_compiled).found
    machine.write("home/.cache/torch_extensions/py311_cu130/fused_adam/fused_adam.so", "")
    assert "at an earlier start" in operations(surroundings, compiled=nothing_compiled).found


def test_the_operations_of_the_installed_deepspeed_can_be_read(machine):
    assert operations(machine.surroundings()).mark == "ok"


def lock_of(machine, name="fused_adam"):
    return machine.write(f"home/.cache/torch_extensions/py311_cu130/{name}/lock", "")


def test_the_lock_of_a_killed_build_is_a_problem_with_the_command_that_removes_it(machine):
    assert build_locks(machine.surroundings()).mark == "ok"
    lock = lock_of(machine)
    os.utime(lock, (lock.stat().st_atime, lock.stat().st_mtime - 2 * 3600))
    found = build_locks(machine.surroundings())
    assert found.mark == "problem" and f"{lock}, 2 h 00 min old, held by no process" in found.found
    assert found.fix.startswith(f"rm {lock} ")


def test_a_lock_whose_process_compiles_is_no_problem(machine):
    lock = lock_of(machine)
    (machine.root / "proc/17").mkdir()
    (machine.root / "proc/17/cwd").symlink_to(lock.parent)
    (machine.root / "proc/18/fd").mkdir(parents=True)
    (machine.root / "proc/18/cwd").symlink_to(machine.root)
    (machine.root / "proc/18/fd/5").symlink_to(lock)
    (machine.root / "proc/19").mkdir()  # another user's: nothing in it can be read
    found = build_locks(machine.surroundings())
    assert found.mark == "ok" and "held by process 17, 18" in found.found


def test_only_the_stale_ones_of_several_locks_are_removed(machine):
    held, stale = lock_of(machine, "held"), lock_of(machine, "stale build")
    (machine.root / "proc/17").mkdir()
    (machine.root / "proc/17/cwd").symlink_to(held.parent)
    found = build_locks(machine.surroundings())
    assert found.mark == "problem" and f"rm '{stale}' " in found.fix
    assert str(held) not in found.fix


def test_the_lock_that_torch_holds_is_seen_in_this_very_process(machine):
    folder = machine.root / "extensions" / "operation"
    folder.mkdir(parents=True)
    baton = FileBaton(str(folder / "lock"))
    assert baton.try_acquire()
    environment = {"TORCH_EXTENSIONS_DIR": str(folder.parent)}
    surroundings = machine.surroundings(environment=environment, root=Path("/"))
    assert f"held by process {os.getpid()}" in build_locks(surroundings).found
    baton.release()
    assert build_locks(surroundings).found.startswith("none in")


def test_a_cache_that_cannot_be_written_is_told(machine, monkeypatch):
    pytest.importorskip("triton")
    assert triton_cache(machine.surroundings()).mark == "ok"
    # Root may write everywhere, so that the answer of the system is given here.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = triton_cache(machine.surroundings(environment={"TRITON_CACHE_DIR": "/nowhere/x"}))
    assert found.mark == "warning" and "/nowhere/x cannot be written" in found.found
    assert triton_cache(machine.surroundings(accelerators=WITH_GPUS)).mark == "problem"
