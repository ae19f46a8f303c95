"""Chooses how the model is executed: attention, kernels, compiled blocks, activation checkpointing.

The choice changes the speed, and the results only within rounding. The settings "auto" are resolved
here, once per launch, and written to launches.jsonl with the reason: the first rank plans, and all
ranks try the plan. What cannot work is refused before anything starts.
"""

import dataclasses
import importlib.util
import inspect
from dataclasses import dataclass
from typing import Any, Literal

import torch

from pretrain.config.ds_config import autocast_type, compute_type, zero_stage
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings
from pretrain.distributed.hardware import Gpu
from pretrain.distributed.ranks import Ranks, on_first_rank
from pretrain.engine.agreement import first_problem, refused_once
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.kernel_check import disagreement_with_eager
from pretrain.model.kernels.cpu_kernels import (
    KERNEL_TYPES,
    KernelError,
    load_cpu_kernels,
    obstacle_to_cpu_kernels,
)
from pretrain.model.kernels.triton_tilings import HEAD_WIDTHS
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.objectives.objective import Objective
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.model.shapes import shapes_only
from pretrain.model.transformers_encoder import build_whole, steps_of_head

VOLTA, AMPERE = (7, 0), (8, 0)

# What "auto" takes by device, why, and otherwise.
PREFERRED = {
    "cpu": ("fused", "softmax and bias in one pass", "eager"),
    "cuda": (
        "triton",
        "no scores in memory, and one gradient of the bias for the whole batch",
        "sdpa",
    ),
}

# What multiplies queries with the vectors of distances.
RELATIVE_KEYS = ("eager", "sdpa")


@dataclass(frozen=True)
class Machine:
    """The properties of a machine that the choice depends on."""

    device: Literal["cpu", "cuda"]
    dtype: torch.dtype  # of the matrix products
    zero_stage: int
    capability: tuple[int, int] = (0, 0)  # of the GPU
    autocasts: bool = False  # weights are fp32, whatever the type of the products


def build_model(settings: RunSettings, ds_config: dict[str, Any], ranks: Ranks) -> Objective:
    """Build the model, initialised from torch's generator, as all ranks can execute it.

    A collective: each rank tries the plan of the first one, and all leave out what fails on one.

    Raises:
        ConfigError: what the settings ask for cannot work here; SystemExit on all ranks but the
            first.
    """
    machine = this_machine(ds_config, ranks.device)
    execution = on_first_rank(ranks, lambda: plan_execution(settings, machine))
    with refused_once(ranks):
        if settings.model.transformers is not None:
            return build_objective(settings.model, settings.objective, None, execution)
        if execution.fuses_loss:
            execution = _with_kernels(execution, settings, ranks)
        # First: the attention is checked compiled only where blocks are.
        if execution.compiles_blocks:
            execution = _compilable(execution, settings, machine, ranks)
        on_gpu = machine.device == "cuda"
        if execution.attention == "fused" or (on_gpu and execution.attention != "eager"):
            execution = _checked(execution, settings, machine, ranks)
    return build_objective(settings.model, settings.objective, settings.electra, execution)


def this_machine(
    ds_config: dict[str, Any], device: Literal["cpu", "cuda"], gpu: Gpu | None = None
) -> Machine:
    """Return this machine, as runs with this DeepSpeed configuration use it.

    With another GPU, which a dry run is for: one with that GPU, and the packages of this.
    """
    capability = (0, 0)
    if gpu is not None:
        capability = AMPERE if torch.bfloat16 in gpu.types else VOLTA
    elif device == "cuda":
        capability = torch.cuda.get_device_capability()
    dtype, stage = compute_type(ds_config), zero_stage(ds_config)
    return Machine(device, dtype, stage, capability, autocast_type(ds_config) is not None)


def plan_execution(settings: RunSettings, machine: Machine) -> ExecutionPlan:
    """Decide how the model runs.

    Raises:
        ConfigError: what the settings ask for cannot work on such a machine.
    """
    if settings.model.transformers is not None:
        return _their_execution(settings)
    attention: str = settings.engine.attention
    reason, otherwise = "as set", ""
    if attention == "auto":
        attention, reason, otherwise = PREFERRED[machine.device]
    obstacle = _obstacle(attention, settings, machine)
    if obstacle is not None and not otherwise:
        raise ConfigError(
            f"engine.attention={attention!r}: {obstacle}; leave it at auto, or take eager"
        )
    if obstacle is not None:
        attention, reason = otherwise, f"no kernel of ours: {obstacle}"
    obstacle = _kernels_obstacle(settings, machine)
    is_news = obstacle is not None and obstacle not in reason
    is_expected = machine.device == "cpu" and settings.engine.cpu_kernels == "auto"
    return ExecutionPlan(
        attention,
        reason,
        _compiles_blocks(settings, machine),
        settings.engine.recompute_blocks,
        fuses_loss=obstacle is None,
        kernel_problem=f"no kernel of ours: {obstacle}" if is_news and is_expected else None,
    )


def _their_execution(settings: RunSettings) -> ExecutionPlan:
    """Decide how a model of transformers runs: as it is."""
    engine, attached = settings.engine, settings.model.positions != "own"
    refused = {
        f"engine.attention={engine.attention}": engine.attention in ("fused", "triton")
        or (attached and engine.attention != "auto"),
        "engine.cpu_kernels=on": engine.cpu_kernels == "on",
        "engine.compile_blocks=on": engine.compile_blocks == "on",
    }
    if given := [name for name, is_given in refused.items() if is_given]:
        raise ConfigError(f"{given[0]} is for our own models, not one of transformers; remove it")
    with shapes_only():
        whole = build_whole(settings.model)
    steps, notes = steps_of_head(whole), ["transformers' own"]
    if not steps:
        notes.append("logits of all tokens, as its head is not known")
    code = inspect.getfile(type(whole))
    if "transformers_modules" in code:
        notes.append(f"code of {code}")
    attention = "own" if engine.attention == "auto" else engine.attention
    return ExecutionPlan(attention, "; ".join(notes), recomputes_blocks=engine.recompute_blocks)


def _obstacle(attention: str, settings: RunSettings, machine: Machine) -> str | None:
    """Return why a backend cannot compute this run, or None."""
    model, encoding = settings.model, POSITION_ENCODINGS[settings.model.positions]
    if encoding.has_relative_keys and attention not in RELATIVE_KEYS:
        return f"it has no vectors for the keys, which model.positions={model.positions!r} adds"
    if attention == "fused":
        obstacle = _kernels_obstacle(settings, machine)
        if obstacle is None and _compiles_blocks(settings, machine):
            return "torch.compile does not see through it, and engine.compile_blocks is on"
        return obstacle
    if attention != "triton":
        return None
    if machine.device == "cpu":
        return "it needs an NVIDIA GPU"
    if machine.capability < AMPERE:
        major, minor = machine.capability
        return f"it needs compute capability 8.0, and this GPU has {major}.{minor}"
    if model.head_width not in HEAD_WIDTHS:
        widths = ", ".join(map(str, HEAD_WIDTHS))
        return f"heads are {model.head_width} wide, and its kernels are made for {widths}"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    return None


def _kernels_obstacle(settings: RunSettings, machine: Machine) -> str | None:
    """Return why our kernels for CPUs are not used, or None; refuse it where they must be."""
    if settings.engine.cpu_kernels == "off":
        return "engine.cpu_kernels is off"
    if machine.device != "cpu":
        obstacle: str | None = "it is made for CPUs"
    elif machine.dtype not in KERNEL_TYPES:
        obstacle = f"it computes in fp32 or bf16, and this run in {machine.dtype}"
    else:
        obstacle = obstacle_to_cpu_kernels()
    if obstacle is not None and settings.engine.cpu_kernels == "on":
        raise ConfigError(f"engine.cpu_kernels='on': {obstacle}; leave it at auto")
    return obstacle


def _compiles_blocks(settings: RunSettings, machine: Machine) -> bool:
    choice = settings.engine.compile_blocks
    if choice == "auto":
        # On a CPU it was measured to win nothing, after half a minute of compiling.
        has_triton = importlib.util.find_spec("triton") is not None
        return machine.device == "cuda" and machine.zero_stage != 3 and has_triton
    if choice == "off":
        return False
    if machine.zero_stage == 3:
        raise ConfigError(
            "engine.compile_blocks='on' with ZeRO stage 3, which takes the weights of a block "
            "away between its steps, where a compiled block cannot see it; use stage 1 or 2"
        )
    return True


def _with_kernels(execution: ExecutionPlan, settings: RunSettings, ranks: Ranks) -> ExecutionPlan:
    """Load our kernels for CPUs; if "auto" chose them and they fail, plan without them."""
    problem = None
    try:
        load_cpu_kernels()
    except KernelError as error:
        problem = str(error)
    problem = first_problem(problem, ranks)
    if problem is None:
        return execution
    engine = settings.engine
    if engine.cpu_kernels == "on" or engine.attention == "fused":
        raise ConfigError(
            f"our kernels for CPUs cannot be built: {problem}; set engine.cpu_kernels=off"
        )
    problem = f"no kernel of ours: {problem}"
    instead: dict[str, Any] = {"kernel_problem": problem}
    if execution.attention == "fused":
        instead = {"attention": "eager", "reason": problem}
    return dataclasses.replace(execution, fuses_loss=False, **instead)


def _compilable(
    execution: ExecutionPlan, settings: RunSettings, machine: Machine, ranks: Ranks
) -> ExecutionPlan:
    """Compile plain attention; if "auto" chose to compile and it fails, plan without it.

    torch compiles in C or C++, also what Triton launches: without a compiler the first step fails.
    """
    import torch._dynamo  # takes two seconds

    # Graphs of an earlier model of this process would count against the limit of this one.
    torch._dynamo.reset()
    problem = _problem("eager", settings, machine, ranks, compiles=True)
    if problem is None:
        return execution
    if settings.engine.compile_blocks == "on":
        raise ConfigError(
            f"engine.compile_blocks='on' does not work on this machine: {problem}; leave it at auto"
        )
    return dataclasses.replace(execution, compiles_blocks=False, compile_problem=problem)


def _problem(
    attention: str, settings: RunSettings, machine: Machine, ranks: Ranks, *, compiles: bool
) -> str | None:
    """Return what is wrong with an attention on a rank, run as the run will run it, or None."""
    length = settings.data.sequence_length
    problem = disagreement_with_eager(
        attention,
        settings.model,
        length=length if length <= 4096 else 2048 + length % 2048,  # the reference takes S x S
        device=machine.device,
        dtype=machine.dtype,
        autocasts=machine.autocasts,
        compiles=compiles,
    )
    return first_problem(problem, ranks)


def _checked(
    execution: ExecutionPlan, settings: RunSettings, machine: Machine, ranks: Ranks
) -> ExecutionPlan:
    """Test the attention on this machine; if "auto" chose one that fails, take the next best."""
    engine = settings.engine
    insists = execution.attention == "fused" and engine.cpu_kernels == "on"
    is_free = engine.attention == "auto" and not insists
    candidates = [execution.attention]
    if is_free and execution.attention not in ("sdpa", "fused"):
        candidates.append("sdpa")
    problems: list[str] = []
    where = "GPU" if machine.device == "cuda" else "CPU"
    for attention in candidates:
        problem = _problem(attention, settings, machine, ranks, compiles=execution.compiles_blocks)
        if problem is None:
            reason = "; ".join(problems) or execution.reason
            return dataclasses.replace(execution, attention=attention, reason=reason)
        problems.append(f"{attention} does not work on this {where}: {problem}")
    if not is_free:
        raise ConfigError(
            f"engine.attention={execution.attention!r} does not work on this {where}: {problem}; "
            + ("set engine.cpu_kernels=off" if insists else "leave it at auto, or take eager")
        )
    return dataclasses.replace(execution, attention="eager", reason="; ".join(problems))
