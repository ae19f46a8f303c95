"""Models of shapes alone: no memory, no values."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _WithoutValues(TorchFunctionMode):
    """Leaves out normal random numbers, for which torch imports its compiler: two seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.nn.init.normal_, torch.Tensor.normal_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Build modules whose parameters have shapes, and neither memory nor values."""
    with torch.device("meta"), _WithoutValues():
        yield
