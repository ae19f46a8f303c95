import dataclasses

import pytest
import torch

from pretrain.doctor.device import accelerator, find_accelerators, precision
from pretrain.doctor.finding import Accelerators
from tests.pretrain.doctor.conftest import GIB, H100, WITH_GPUS

DRIVER = ("NVIDIA H100, 580.1",)


@pytest.mark.parametrize(
    ("accelerators", "environment", "mark", "found", "fix"),
    [
        (Accelerators(), {}, "ok", "no NVIDIA GPU", ""),
        (Accelerators(torch_cuda="13.0"), {}, "ok", "built for CUDA 13.0", ""),
        (Accelerators(driver=DRIVER), {}, "problem", "is a build for CPUs", "--force-reinstall"),
        (
            Accelerators(driver=DRIVER, torch_cuda="13.0"),
            {"CUDA_VISIBLE_DEVICES": ""},
            "warning",
            "CUDA_VISIBLE_DEVICES='' leaves none",
            "unset CUDA_VISIBLE_DEVICES",
        ),
        (Accelerators(driver=DRIVER, torch_cuda="13.0"), {}, "problem", "sees none", "driver"),
        (Accelerators(driver=(), driver_complaint="mismatch"), {}, "problem", "mismatch", "again"),
        (WITH_GPUS, {}, "ok", "NVIDIA H100, 80.0 GiB, compute capability 9.0", ""),
    ],
)
def test_every_way_not_to_see_a_gpu_is_told_apart(
    machine, accelerators, environment, mark, found, fix
):
    surroundings = machine.surroundings(accelerators=accelerators, environment=environment)
    finding = accelerator(surroundings)
    assert finding.mark == mark and found in finding.found and fix in finding.fix
    assert bool(finding.fix) == (mark != "ok")


@pytest.mark.parametrize(
    ("capability", "architectures", "fits"),
    [
        ((9, 0), ("sm_90",), True),
        ((8, 6), ("sm_80",), True),  # machine code runs on later minor versions
        ((8, 0), ("sm_86",), False),
        ((12, 0), ("sm_80", "sm_90"), False),
        ((12, 0), ("sm_80", "compute_90"), True),  # PTX is compiled by the driver
        ((9, 0), ("sm_90a", "sm_100"), True),
        ((10, 0), ("sm_90a", "sm_100a"), True),
        ((7, 0), ("sm_80", "compute_80"), False),
    ],
)
def test_a_gpu_for_which_torch_has_no_kernels_is_a_problem(
    machine, capability, architectures, fits
):
    gpu = dataclasses.replace(H100, capability=capability)
    found = Accelerators((gpu,), "13.0", architectures, DRIVER)
    finding = accelerator(machine.surroundings(accelerators=found))
    assert (finding.mark == "problem") is not fits


def test_a_gpu_that_others_have_filled_is_a_warning(machine):
    full = dataclasses.replace(H100, free_bytes=3 * GIB)
    found = dataclasses.replace(WITH_GPUS, gpus=(H100, full))
    finding = accelerator(machine.surroundings(accelerators=found))
    assert finding.mark == "warning" and "of GPU 1 only 3.0 GiB are free" in finding.found


def test_the_precision_names_what_auto_would_choose(machine):
    one, two = (precision(machine.surroundings(ranks=ranks)).found for ranks in (1, 2))
    assert "engine.ds_config auto is zero0_" in one and "auto is zero1_" in two


def test_this_machine_is_seen_as_torch_sees_it():
    found = find_accelerators()
    assert len(found.gpus) == torch.cuda.device_count()
    assert found.torch_cuda == torch.version.cuda
