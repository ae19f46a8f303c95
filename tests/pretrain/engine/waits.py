"""Records where a step would wait for a GPU, while it runs on a CPU.

DeepSpeed asks its accelerator whether the device is synchronous, and waits only where it is not: it
is given one that has streams and events, as CUDA does, that do nothing.
"""

import contextlib

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

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


class FakeStream:
    """A CUDA stream as DeepSpeed uses it."""

    def __init__(self, found):
        self._found = found

    def synchronize(self):
        self._found.append("wait for a stream")

    def wait_stream(self, other):
        pass

    wait_event = wait_stream


class FakeEvent:
    """A CUDA event that has passed."""

    def __init__(self, found):
        self._found = found

    def record(self, *_):
        pass

    def query(self):
        return True

    def synchronize(self):
        self._found.append("wait for an event")


def as_on_cuda(monkeypatch, accelerator):
    """Give the accelerator of a CPU streams, and return a list to which each wait is added."""
    found = []
    stream, kind = FakeStream(found), type(accelerator)
    monkeypatch.setattr(kind, "is_synchronized_device", lambda _: False)
    monkeypatch.setattr(kind, "use_host_timers", lambda _: True)
    monkeypatch.setattr(kind, "synchronize", lambda *_: found.append("wait for the device"))
    monkeypatch.setattr(kind, "Stream", property(lambda _: lambda *a, **k: FakeStream(found)))
    monkeypatch.setattr(kind, "Event", property(lambda _: lambda *a, **k: FakeEvent(found)))
    monkeypatch.setattr(kind, "stream", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(kind, "current_stream", lambda *_: stream)
    monkeypatch.setattr(kind, "default_stream", lambda *_: stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: found.append("wait for the device"))
    return found


@contextlib.contextmanager
def recorded(found):
    """Add what the block reads from the device, or copies to it, to the list."""

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            if function in READS:
                found.append(READS[function])
            if function in INDEXED and any(_is_mask(index) for index in arguments[1]):
                found.append("read a shape")
            return function(*arguments, **(options or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            if function in CALLS:
                found.append(CALLS[function])
            return function(*arguments, **(options or {}))

    with Dispatch(), Function():
        yield


def _is_mask(index):
    return index is not None and index.dtype == torch.bool
