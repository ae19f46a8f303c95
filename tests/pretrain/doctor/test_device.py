import pytest
import torch

from pretrain.doctor.check import Accelerators
from pretrain.doctor.device import accelerator, find_accelerators
from tests.pretrain.doctor.conftest import WITH_GPUS

DRIVER = ("NVIDIA H100, 580.1",)


@pytest.mark.parametrize(
    ("accelerators", "environment", "status", "message", "fix"),
    [
        (Accelerators(), {}, "ok", "no NVIDIA GPU", ""),
        (Accelerators(torch_cuda="13.0"), {}, "ok", "no NVIDIA GPU", ""),
        (Accelerators(driver=DRIVER), {}, "problem", "is a build for CPUs", "--force-reinstall"),
        (
            Accelerators(driver=DRIVER, torch_cuda="13.0"),
            {"CUDA_VISIBLE_DEVICES": ""},
            "warning",
            "hidden by CUDA_VISIBLE_DEVICES=''",
            "unset CUDA_VISIBLE_DEVICES",
        ),
        (Accelerators(driver=DRIVER, torch_cuda="13.0"), {}, "problem", "sees none", "driver"),
        (Accelerators(driver=(), driver_error="mismatch"), {}, "problem", "mismatch", "again"),
        (WITH_GPUS, {}, "ok", "NVIDIA H100, 80.0 GiB; NVIDIA H100, 80.0 GiB; torch", ""),
    ],
)
def test_every_way_not_to_see_a_gpu_is_distinguished(
    machine, accelerators, environment, status, message, fix
):
    context = machine.context(accelerators=accelerators, environment=environment)
    result = accelerator(context)
    assert result.status == status and message in result.message and fix in result.fix
    assert bool(result.fix) == (status != "ok")


def test_this_machine_is_seen_as_torch_sees_it():
    found = find_accelerators()
    assert len(found.gpus) == torch.cuda.device_count()
    assert found.torch_cuda == torch.version.cuda
