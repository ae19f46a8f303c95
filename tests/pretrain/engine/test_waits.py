"""Where a step waits for the device: nowhere at ZeRO stage 0, as seen on a CPU.

DeepSpeed asks its accelerator whether the device is synchronous, and waits only where it is not: it
is told that it is not. What is read from the device, or copied to it, is seen by torch's modes.
"""

import contextlib
from collections import Counter

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.distributed.ranks import start_ranks
from pretrain.engine import launch
from tests.pretrain.engine import training_case as case

# Each copies to the host: numbers (item, float, bool, tolist), and shapes that depend on values.
READS = {
    torch.ops.aten._local_scalar_dense.default: "read a number",
    torch.ops.aten.nonzero.default: "read a shape",
    torch.ops.aten.masked_select.default: "read a shape",
    torch.ops.aten.unique_dim.default: "read a shape",
}
INDEXED = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default)
# On a CPU these are no operations of the device.
CALLS = {
    torch.Tensor.cpu: "copy to the host",
    torch.Tensor.numpy: "copy to the host",
    torch.Tensor.tolist: "copy to the host",
    torch.tensor: "copy from the host",  # pageable memory: the host waits
    torch.as_tensor: "copy from the host",
    torch.from_numpy: "copy from the host",
}
# Eager: what compiled code does cannot be seen from here.
EXECUTION = ("--engine.attention", "eager", "--engine.cpu_kernels", "off")


@contextlib.contextmanager
def recorded(found):
    """Add what the block reads from the device, or copies to it, to the list."""

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            masks = function in INDEXED and [
                index for index in arguments[1] if index is not None and index.dtype == torch.bool
            ]
            if function in READS or masks:
                found.append(READS.get(function, "read a shape"))
            return function(*arguments, **(options or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            if function in CALLS:
                found.append(CALLS[function])
            return function(*arguments, **(options or {}))

    with Dispatch(), Function():
        yield


def test_what_waits_is_seen():
    """Else the tests below could not fail."""
    found, x = [], torch.ones(3)
    with recorded(found):
        float(x[0]), bool(x[0] > 0), x.tolist(), x.cpu(), torch.tensor(1.0), x[x > 0]
    seen = Counter(found)
    assert seen["read a number"] >= 2 and seen["read a shape"] == 1
    assert seen["copy to the host"] == 2 and seen["copy from the host"] == 1


def waits(monkeypatch, name, **keys):
    """Return what two steps wait for, with more keys in the DeepSpeed JSON."""
    ranks, found = start_ranks(), []
    from deepspeed.accelerator import get_accelerator

    kind = type(get_accelerator())
    monkeypatch.setattr(kind, "is_synchronized_device", lambda _: False)
    for owner in (kind, torch.cuda):
        monkeypatch.setattr(owner, "synchronize", lambda *_: found.append("wait for the device"))
    settings = case.case_settings(*EXECUTION)
    config = fill_ds_config({**read_ds_config(name, "cpu"), **keys}, settings, world_size=1)
    engine = launch.build_engine(settings, config, ranks)

    def step(number):
        batches = [
            (case.micro_batch(number, place), case.scales_of(settings, number, place))
            for place in range(case.PLACES)
        ]
        return engine.train_step(batches, 1e-3)

    for number in range(3):  # DeepSpeed's timer would begin to wait after two
        step(number)
    found.clear()
    with recorded(found):
        results = [step(number) for number in (3, 4)]
    assert all(torch.isfinite(result.losses).all() for result in results)
    return found


def test_a_step_at_stage_0_waits_nowhere(monkeypatch):
    """With skipped blocks, accumulation and clipping."""
    assert waits(monkeypatch, "zero0_bf16_autocast") == []


def test_deepspeeds_timer_waits_for_the_device(monkeypatch):
    """Else the test above would not see such a wait."""
    timers = {"throughput": {"enabled": True}}
    assert "wait for the device" in waits(monkeypatch, "zero0_fp32", timers=timers)
