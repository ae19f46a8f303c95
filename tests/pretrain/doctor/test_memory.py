import dataclasses

import pytest

from pretrain.config.recipe import load_settings
from pretrain.doctor.check import Accelerators
from pretrain.doctor.memory import gpu_memory, memory, shared_memory
from pretrain.engine.zero_choice import with_fitted_buckets
from pretrain.profiling.free_memory import free_memory_bytes
from tests.pretrain.doctor.conftest import GIB, H100, WITH_GPUS, disk

FP32 = {"zero_optimization": {"stage": 0}}


def test_dockers_default_of_shared_memory_is_a_problem_for_runs_that_need_more(machine):
    docker = disk(64 * 2**20)
    alone = shared_memory(machine.context(), statvfs=docker)
    assert alone.status == "warning" and "64.0 MiB free" in alone.message
    found = shared_memory(machine.context(accelerators=WITH_GPUS), statvfs=docker)
    assert found.status == "problem" and "NCCL" in found.message and "--shm-size" in found.fix
    assert shared_memory(machine.context(), statvfs=disk(8 * GIB)).status == "ok"


def test_shared_memory_that_others_fill_is_not_to_be_enlarged_but_emptied(machine):
    found = shared_memory(machine.context(), statvfs=disk(2**20, total_bytes=8 * GIB))
    assert "ls -l" in found.fix


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8 * GIB),
        ({"memory.max": 5 * GIB, "memory.current": 2 * GIB}, 3 * GIB),
        ({"memory.max": "max", "memory.current": 2 * GIB}, 8 * GIB),
        ({"memory/memory.limit_in_bytes": 4 * GIB, "memory/memory.usage_in_bytes": GIB}, 3 * GIB),
        ({"memory/memory.limit_in_bytes": 2**63 - 4096}, 8 * GIB),
        ({"job/7/memory.max": 20 * GIB, "job/memory.max": 6 * GIB}, 6 * GIB),
        ({"memory.max": GIB, "memory.current": 2 * GIB}, 0),
        (
            {
                **{"memory.max": 5 * GIB, "memory.current": 5 * GIB},
                "memory.stat": f"anon {GIB}\nfile {4 * GIB}\ninactive_file {3 * GIB}",
            },
            3 * GIB,
        ),
        (
            {
                "memory/memory.limit_in_bytes": 4 * GIB,
                "memory/memory.usage_in_bytes": 4 * GIB,
                "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}",
            },
            GIB,
        ),
    ],
)
def test_the_tightest_limit_around_the_process_counts(machine, files, free):
    machine.write("proc/self/cgroup", "0::/job/7\n")
    for name, value in files.items():
        machine.write(f"sys/fs/cgroup/{name}", f"{value}\n")
    assert free_memory_bytes(machine.root) == free


def test_memory_is_what_28_bytes_a_parameter_and_a_gib_a_rank_leave(machine):
    settings = load_settings(
        "tiny_cpu", ("--model.width", "1024", "--model.num_heads", "16", "--model.num_layers", "24")
    )
    # 4 of weights, 4 of gradients, 8 of Adam, 12 of the copy that a checkpoint is written from;
    # a block has 12 H^2 + 13 H, and there is no GPU.
    at_least = 28 * 24 * 12 * 1024**2
    machine.write("proc/meminfo", f"MemAvailable: {2 * (at_least + GIB) // 1024} kB\n")
    assert memory(machine.context(settings=settings, ds_config=FP32)).status == "ok"
    machine.write("proc/meminfo", f"MemAvailable: {(at_least + GIB) // 1024} kB\n")
    found = memory(machine.context(settings=settings, ds_config=FP32))
    assert found.status == "problem"
    found = memory(machine.context(accelerators=WITH_GPUS, settings=settings, ds_config=FP32))
    assert found.status != "problem"  # the model is on the GPU, the copy is not


def test_zero_3_divides_what_has_to_fit_into_a_gpu(machine):
    settings = load_settings(
        "tiny_cpu", ("--model.width", "1024", "--model.num_heads", "16", "--model.num_layers", "24")
    )
    small = dataclasses.replace(H100, free_bytes=4 * GIB)
    gpus = dataclasses.replace(WITH_GPUS, gpus=(small,) * 4)

    def look(stage):
        ds_config = with_fitted_buckets({"zero_optimization": {"stage": stage}}, settings)
        return gpu_memory(
            machine.context(accelerators=gpus, ranks=4, settings=settings, ds_config=ds_config)
        )

    assert look(0).status == "problem" and "zero3" in look(0).fix
    assert look(3).status == "ok"
    assert gpu_memory(machine.context()).message == "no GPU"


def test_a_gpu_that_others_use_is_named(machine):
    used = dataclasses.replace(H100, free_bytes=12 * GIB)
    result = gpu_memory(machine.context(accelerators=Accelerators((H100, used))))
    assert result.status == "warning" and "other processes use GPU 1" in result.message
    assert gpu_memory(machine.context(accelerators=WITH_GPUS)).status == "ok"
