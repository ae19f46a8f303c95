from types import SimpleNamespace

import pytest
import torch

from pretrain.distributed.gpus import DriverAnswer, DriverGpu
from pretrain.doctor import device
from pretrain.doctor.check import Accelerators, Gpu
from pretrain.doctor.device import accelerator, find_accelerators
from tests.pretrain.doctor.conftest import GIB, H100, WITH_GPUS

DRIVER = DriverAnswer((DriverGpu("0", "GPU-1", "NVIDIA H100", "580.1"),))
IN_USE = Gpu("NVIDIA H100", 80 * GIB, 0, "CUDA-capable device(s) is/are busy")


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
        (
            Accelerators(driver=DRIVER),
            {"CUDA_VISIBLE_DEVICES": "-1"},
            "warning",
            "hidden by CUDA_VISIBLE_DEVICES='-1'",
            "unset CUDA_VISIBLE_DEVICES",
        ),
        (Accelerators(driver=DRIVER, torch_cuda="13.0"), {}, "problem", "sees none", "driver"),
        (
            Accelerators(driver=DRIVER, torch_cuda="13.0"),
            {"CUDA_VISIBLE_DEVICES": "0"},  # hides none of them
            "problem",
            "sees none",
            "driver",
        ),
        (Accelerators(driver=DriverAnswer(error="mismatch")), {}, "problem", "mismatch", "again"),
        (Accelerators((H100, IN_USE)), {}, "problem", "GPU 1 (CUDA-capable", "nvidia-smi"),
        (WITH_GPUS, {}, "ok", "NVIDIA H100, 80.0 GiB; NVIDIA H100, 80.0 GiB; torch", ""),
    ],
)
def test_every_way_not_to_see_a_gpu_is_distinguished(
    machine, monkeypatch, accelerators, environment, status, message, fix
):
    monkeypatch.setattr(torch.version, "cuda", accelerators.torch_cuda)
    monkeypatch.setattr(device, "obstacle_to_architecture", lambda: None)
    context = machine.context(accelerators=accelerators, environment=environment)
    result = accelerator(context)
    assert result.status == status and message in result.message and fix in result.fix
    assert bool(result.fix) == (status != "ok")


def test_this_machine_is_seen_as_torch_sees_it():
    found = find_accelerators()
    assert len(found.gpus) == torch.cuda.device_count()
    assert found.torch_cuda == torch.version.cuda


def test_a_gpu_that_another_process_has_for_itself_is_described(monkeypatch):
    def busy(number):
        raise RuntimeError("CUDA error: device(s) is/are busy or unavailable\nand more")

    properties = SimpleNamespace(name="NVIDIA H100", total_memory=80 * GIB)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", busy)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: properties)
    (gpu,) = find_accelerators().gpus
    error = "CUDA error: device(s) is/are busy or unavailable"
    assert gpu == Gpu("NVIDIA H100", 80 * GIB, 0, error)
