"""Describes a run before it starts: settings, size and cost (`--dry-run`)."""

from typing import Any

from tabulate import tabulate

from data_prep.files.program import shell_command
from pretrain.config.ds_config import zero_stage
from pretrain.config.settings import RunSettings, as_json
from pretrain.engine.optimizers import state_numbers
from pretrain.model.cost import parameters_by_group
from pretrain.schedules.layer_drop import keep_probabilities, theta_at
from pretrain.schedules.step_plan import finished_before, horizon_of_steps
from pretrain.train.progress import Progress

FP32_BYTES = 4


def describe_run(settings: RunSettings, ds_config: dict[str, Any], world_size: int) -> str:
    """Return the resolved settings, parameters by group, and cost per step, as text."""
    parameters = parameters_by_group(settings.model, settings.objective)
    table = tabulate(
        [(name, f"{count:,}", f"{count / 1e6:.2f} M") for name, count in parameters.items()],
        headers=("parameters", "", ""),
        colalign=("left", "right", "right"),
        disable_numparse=True,
    )
    rows = _cost_rows(settings, ds_config, world_size)
    cost = tabulate(rows, tablefmt="plain", disable_numparse=True)
    return f"{as_json(settings)}\n{table}\n\n{cost}"


def optimizer_state_bytes(settings: RunSettings, ds_config: dict[str, Any], world_size: int) -> int:
    """Return the bytes of optimizer state per rank: ZeRO 1 to 3 divide it among the ranks."""
    # ZeRO keeps an fp32 partition of its own, also where the weights are fp32 themselves.
    if zero_stage(ds_config) == 0:
        return FP32_BYTES * state_numbers(settings)
    parameters = parameters_by_group(settings.model, settings.objective)["total"]
    return -(-FP32_BYTES * (state_numbers(settings) + parameters) // world_size)


def describe_rates(progress: Progress) -> str:
    """Return learning rate and theta of the next step, and of the last one where it is known."""
    schedule, drops = progress.schedule, progress.settings.layer_drop.schedule != "none"
    plans = [progress.next_plan()]
    if schedule.horizon.segment.end_step is not None:
        plans.append(schedule.plan(schedule.horizon.segment.end_step))
    return ", ".join(
        f"learning rate {plan.learning_rate:.3g}{f', theta {plan.theta:.3g}' * drops} at step "
        f"{plan.step:,}"
        for plan in plans
    )


def _cost_rows(
    settings: RunSettings, ds_config: dict[str, Any], world_size: int
) -> list[tuple[str, str]]:
    progress = Progress(settings, world_size)
    accumulation = progress.micro_batches_per_step
    full = progress.pass_flops([1] * settings.model.num_layers) * accumulation
    horizon, last_step = horizon_of_steps(settings), finished_before(settings.steps)
    theta = theta_at(horizon.position(last_step), settings.layer_drop, horizon.span(last_step))
    kept = keep_probabilities(theta, settings.model.num_layers, settings.layer_drop)
    last = progress.pass_flops(kept) * accumulation
    state = optimizer_state_bytes(settings, ds_config, world_size)
    micro = ds_config["train_micro_batch_size_per_gpu"]
    return [
        ("ranks x micro-batches x sequences", f"{world_size} x {accumulation} x {micro}"),
        ("tokens per step", f"{progress.tokens_per_step:,}"),
        ("tokens in all", _tokens(settings, progress.tokens_per_step)),
        ("FLOPs per step, full depth", f"{full:.3e}"),
        ("FLOPs per step, last step", f"{last:.3e} (expected {sum(kept):.2f} blocks)"),
        ("optimizer state per rank", f"{state / 2**20:,.1f} MiB"),
    ]


def _tokens(settings: RunSettings, tokens_per_step: int) -> str:
    if settings.hours is not None:
        return f"as many as {settings.hours:g} h allow; {shell_command('plan')} measures it"
    return f"{tokens_per_step * settings.steps:,}"
