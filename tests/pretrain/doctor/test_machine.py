import dataclasses
import os
import resource

import pytest

from pretrain.config.recipe import load_settings
from pretrain.doctor.finding import Accelerators
from pretrain.doctor.machine import (
    cpu_quota,
    free_memory_bytes,
    gpu_memory,
    memory,
    open_files,
    processors,
    shared_memory,
)
from tests.pretrain.doctor.conftest import GIB, H100, WITH_GPUS, disk

FP32 = {"zero_optimization": {"stage": 0}}


@pytest.fixture
def cores(monkeypatch):
    """Give this process as many cores as the test says."""
    return lambda number: monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(number))


def test_dockers_default_of_shared_memory_is_a_problem_for_whoever_needs_more(machine):
    docker = disk(64 * 2**20)
    alone = shared_memory(machine.surroundings(), statvfs=docker)
    assert alone.mark == "warning" and "64.0 MiB free" in alone.found
    with_workers = load_settings("tiny_cpu", ("--data.loader_workers", "2"))
    found = shared_memory(machine.surroundings(settings=with_workers), statvfs=docker)
    assert found.mark == "problem" and "data.loader_workers" in found.found
    found = shared_memory(machine.surroundings(accelerators=WITH_GPUS), statvfs=docker)
    assert found.mark == "problem" and "NCCL" in found.found and "--shm-size" in found.fix
    assert shared_memory(machine.surroundings(), statvfs=disk(8 * GIB)).mark == "ok"


def test_shared_memory_that_others_fill_is_not_to_be_enlarged_but_emptied(machine):
    found = shared_memory(machine.surroundings(), statvfs=disk(2**20, total_bytes=8 * GIB))
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
    assert memory(machine.surroundings(settings=settings, ds_config=FP32)).mark == "ok"
    machine.write("proc/meminfo", f"MemAvailable: {(at_least + GIB) // 1024} kB\n")
    found = memory(machine.surroundings(settings=settings, ds_config=FP32))
    assert found.mark == "problem"
    found = memory(machine.surroundings(accelerators=WITH_GPUS, settings=settings, ds_config=FP32))
    assert found.mark != "problem"  # the model is on the GPU, the copy is not


def test_zero_3_divides_what_has_to_fit_into_a_gpu(machine):
    settings = load_settings(
        "tiny_cpu", ("--model.width", "1024", "--model.num_heads", "16", "--model.num_layers", "24")
    )
    small = dataclasses.replace(H100, free_bytes=4 * GIB)
    gpus = dataclasses.replace(WITH_GPUS, gpus=(small,) * 4)

    def look(stage):
        ds_config = {"zero_optimization": {"stage": stage}}
        return gpu_memory(
            machine.surroundings(accelerators=gpus, ranks=4, settings=settings, ds_config=ds_config)
        )

    assert look(0).mark == "problem" and "zero3" in look(0).fix
    assert look(3).mark == "ok"
    assert gpu_memory(machine.surroundings()).found == "no GPU"


@pytest.mark.parametrize(
    ("limits", "mark", "fix"),
    [
        ((256, 4096), "warning", "ulimit -n 1024"),
        ((256, 256), "warning", "limits.conf"),
        ((1024, 1024), "ok", ""),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), "ok", ""),
    ],
)
def test_a_low_limit_of_open_files_is_a_warning(machine, limits, mark, fix):
    found = open_files(machine.surroundings(), limits=lambda _: limits)
    assert found.mark == mark and fix in found.fix


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "250000 100000"}, 2.5),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_the_quota_of_both_kinds_of_control_groups_is_read(machine, files, quota):
    for name, text in files.items():
        machine.write(f"sys/fs/cgroup/{name}", text + "\n")
    assert cpu_quota(machine.root) == quota


@pytest.mark.parametrize(
    ("visible", "quota", "ranks", "threads", "mark", "fix"),
    [
        (8, None, 1, None, "ok", ""),
        (64, 4, 1, None, "warning", "export OMP_NUM_THREADS=4"),
        (8, None, 2, None, "warning", "export OMP_NUM_THREADS=4"),
        (8, None, 2, "4", "ok", ""),
        (8, None, 4, "4", "warning", "export OMP_NUM_THREADS=2"),
        (8, None, 1, "1", "warning", "export OMP_NUM_THREADS=8"),
        (8, None, 1, "many", "warning", "export OMP_NUM_THREADS=8"),
        (2, None, 4, "1", "warning", "export OMP_NUM_THREADS=1"),
    ],
)
def test_threads_have_to_fit_the_cores_that_may_be_used(
    machine, cores, visible, quota, ranks, threads, mark, fix
):
    cores(visible)
    if quota:
        machine.write("sys/fs/cgroup/cpu.max", f"{quota * 100000} 100000\n")
    environment = {"OMP_NUM_THREADS": threads} if threads else {}
    found = processors(machine.surroundings(ranks=ranks, environment=environment))
    assert found.mark == mark and found.fix == fix


def test_idle_cores_beside_a_gpu_are_nobodys_concern(machine, cores):
    cores(16)
    surroundings = machine.surroundings(
        accelerators=WITH_GPUS, environment={"OMP_NUM_THREADS": "1"}
    )
    assert processors(surroundings).mark == "ok"
    cpu = machine.surroundings(accelerators=Accelerators(), environment={"OMP_NUM_THREADS": "1"})
    assert processors(cpu).mark == "warning"
