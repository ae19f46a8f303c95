"""Whether torch.compile works on this machine: a trial with a small model.

On a GPU, Triton compiles its launcher in C against Python's headers when the first kernel runs; on
a CPU, torch compiles the kernels themselves in C++. Without a compiler both fail in the first step
of training. So a run that compiles its blocks compiles a small model at its start.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch

from pretrain.config.ds_config import autocast_type, weight_type
from pretrain.config.settings import RunSettings
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.kernel_check import in_one_line
from pretrain.model.objectives.catalog import build_objective

ROWS, VOCABULARY = 2, 64


def problem_of_compiling(
    settings: RunSettings,
    execution: ExecutionPlan,
    ds_config: Mapping[str, Any],
    device: Literal["cpu", "cuda"],
) -> str | None:
    """Return why compiled blocks do not work here, or None.

    Forgets all that torch.compile has compiled in this process: models that are still used are
    compiled again at their next step.

    Args:
        settings: of the run; its model is tried with one layer and a small vocabulary.
        execution: with compiled blocks.
        ds_config: decides the precision.
        device: on which it runs.
    """
    import torch._dynamo  # takes two seconds

    # Graphs of an earlier model of this process would count against the limit of this one.
    torch._dynamo.reset()
    # The run's own weights and masks come from these generators.
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            return _problem_of_a_step(settings, execution, dict(ds_config), device)
    except Exception as error:  # of a compiler, a driver or a kernel
        return in_one_line(error)
    finally:
        torch._dynamo.reset()


def _problem_of_a_step(
    settings: RunSettings,
    execution: ExecutionPlan,
    ds_config: dict[str, Any],
    device: Literal["cpu", "cuda"],
) -> str | None:
    """Take forward and backward pass of one layer and its head, as training does."""
    small = settings.model.model_copy(update={"num_layers": 1, "vocabulary_size": VOCABULARY})
    model = build_objective(small, settings.objective, settings.electra, execution).train()
    model = model.to(device, weight_type(ds_config))
    autocast = autocast_type(ds_config)
    ids_BS = torch.arange(ROWS * settings.data.sequence_length, device=device) % VOCABULARY
    positions_M = torch.arange(ROWS, device=device) * settings.data.sequence_length
    scales = None if settings.layer_drop.schedule == "none" else [1.5]
    with torch.autocast(device, autocast, enabled=autocast is not None):
        loss = model(ids_BS.view(ROWS, -1), positions_M, ids_BS[positions_M], scales)
    loss.backward()
    is_finite = [
        parameter.grad.isfinite().all()
        for parameter in model.parameters()
        if parameter.grad is not None
    ]
    if not torch.stack([loss.isfinite(), *is_finite]).all():
        return "loss or gradients of a compiled block are not finite"
    return None
