"""The memory of a pass, counted: a model of tensors without memory, and who holds which storage."""

import contextlib
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from pretrain.config.settings import DEFAULT_OBJECTIVE
from pretrain.kernels import triton_kernels
from pretrain.model import attention_backends
from pretrain.model.objectives import build_objective


class LiveBytes(TorchDispatchMode):
    """Adds up the storages that operators make, for as long as anything holds them."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.known = {}

    def add(self, tensor):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known[key] = size
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.forget, key)

    def forget(self, key):
        self.now -= self.known.pop(key)

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        outputs = function(*arguments, **(keywords or {}))
        for output in outputs if isinstance(outputs, list | tuple) else (outputs,):
            if isinstance(output, torch.Tensor):
                self.add(output)
        return outputs


def attention_of_gpus(q_BNSH, k_BNSH, v_BNSH, mask_BNSS, *, scale, dropout=0.0):
    """Attend by the operators that torch takes on CUDA: what they save is what counts here."""
    operators = torch.ops.aten
    if mask_BNSS is None:
        return operators._scaled_dot_product_flash_attention(
            q_BNSH, k_BNSH, v_BNSH, dropout, scale=scale
        )[0]
    mask_BNSS = mask_BNSS.expand(*q_BNSH.shape[:3], k_BNSH.shape[2])
    return operators._scaled_dot_product_efficient_attention(
        q_BNSH, k_BNSH, v_BNSH, mask_BNSS, True, dropout, scale=scale
    )[0]


def peak_of_pass(
    monkeypatch,
    settings,
    execution,
    *,
    rows,
    length,
    predictions,
    weights,
    products,
    objective=DEFAULT_OBJECTIVE,
    electra=None,
):
    """Return the peak bytes of a forward and backward pass onto gradients that exist."""
    monkeypatch.setattr(attention_backends, "torch_attention", attention_of_gpus)
    monkeypatch.setattr(triton_kernels, "interpreted", lambda: True)
    casts = weights != products
    autocast = torch.autocast("cpu", products) if casts else contextlib.nullcontext()
    with FakeTensorMode():
        torch.set_default_dtype(weights)
        try:
            model = build_objective(settings, objective, electra, execution)
        finally:
            torch.set_default_dtype(torch.float32)
        with LiveBytes() as live:
            for parameter in model.parameters():
                live.add(parameter)
                parameter.grad = torch.zeros_like(parameter)
            ids_BS = torch.zeros(rows, length, dtype=torch.int64)
            positions_M = torch.zeros(rows * predictions, dtype=torch.int64)
            with autocast:
                loss = model(ids_BS, positions_M, positions_M)
            loss.backward()
            return live.peak
