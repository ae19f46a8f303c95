"""The set-up of a launch: settings checked against each other and the machine, then the engine.

A recipe is checked when it is read. `checked_ds_config` refuses what can be known only with the
DeepSpeed JSON and the number of ranks, `check_machine` what this device cannot execute; both before
data or model are touched.
"""

from collections.abc import Callable
from typing import Any

import torch

from pretrain.config.ds_config import AUTO, fill_ds_config, read_ds_config, weight_type
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings
from pretrain.distributed.deepspeed_library import check_ds_config
from pretrain.distributed.ranks import Ranks
from pretrain.engine.agreement import refused_once
from pretrain.engine.engine import Engine
from pretrain.engine.execution import build_model, plan_execution, this_machine
from pretrain.engine.micro_batches import choose_micro_batches
from pretrain.engine.optimizers import Device, checked_optimizer
from pretrain.engine.parameter_groups import check_table_rates
from pretrain.engine.zero_choice import automatic_stage, has_bf16, with_fitted_buckets
from pretrain.model.cost import parameters_by_group
from pretrain.model.encoder_blocks import PRE_NORM
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.objectives.objective import Objective
from pretrain.model.objectives.transformers_model import TransformersModel
from pretrain.model.shapes import shapes_only
from pretrain.schedules.layer_drop import check_layer_drop
from pretrain.schedules.learning_rate import learning_rate_at


def checked_ds_config(
    settings: RunSettings, ranks: Ranks, *, stage_before: int | None = None
) -> dict[str, Any]:
    """Return the DeepSpeed configuration of a run, checked against its settings.

    Where the stage is "auto", a run that is resumed keeps its `stage_before`.

    Raises:
        ConfigError: something does not exist or does not go together.
    """
    name, stage = settings.engine.ds_config, stage_before
    if name == AUTO and stage is None:
        stage = automatic_stage(settings, ranks)
    ds_config = read_ds_config(
        name, ranks.device, automatic_stage=stage or 0, has_bf16=has_bf16(ranks)
    )
    check_layer_drop(settings.layer_drop, settings.model.num_layers)
    learning_rate_at(0, settings.learning_rate, settings.steps)  # refuses an unknown schedule
    # Builds the model without memory: refuses unknown parts.
    parameters_by_group(settings.model, settings.objective, settings.electra)
    check_table_rates(settings)
    check_rescale(settings)
    # CUDA can execute whatever exists; `check_machine` refuses what this machine cannot.
    checked_optimizer(settings.optimizer, "cuda", ds_config)
    filled = fill_ds_config(ds_config, settings, world_size=ranks.world_size)
    filled = with_fitted_buckets(filled, settings)
    check_ds_config(filled)
    return filled


def check_rescale(settings: RunSettings) -> None:
    """Refuse to scale the kept blocks of a model of transformers that end in a norm.

    Raises:
        ConfigError: they do, or it is not known that they do not.
    """
    drop, config = settings.layer_drop, settings.model.transformers
    if drop.schedule == "none" or not drop.rescale or not isinstance(config, dict):
        return
    if config["model_type"] not in PRE_NORM:
        raise ConfigError(
            f"layer_drop.rescale=true needs blocks that add to their input, as PreLN's; whether "
            f"those of {config['model_type']} do is not known: --layer_drop.rescale false"
        )


def check_machine(settings: RunSettings, ds_config: dict[str, Any], device: Device) -> None:
    """Check that a device can execute a run.

    Raises:
        ConfigError: precision, optimizer or kernels are not available on it.
    """
    if weight_type(ds_config) == torch.float16 and device == "cpu":
        raise ConfigError(
            "fp16 needs a CUDA device and this run is on a CPU; use bf16: "
            "--engine.ds_config zero1_bf16_autocast"
        )
    # As the engine builds it: an implementation may have to be compiled, or installed.
    kind = checked_optimizer(settings.optimizer, device, ds_config)
    with shapes_only():
        model = build_objective(settings.model, settings.objective, settings.electra)
    kind.build(model, settings.optimizer)
    plan_execution(settings, this_machine(ds_config, device))


def build_engine(
    settings: RunSettings,
    ds_config: dict[str, Any],
    ranks: Ranks,
    *,
    load_weights: Callable[[Objective], None] | None = None,
    sequences_before: int | None = None,
) -> Engine:
    """Build the model from the seed of the run, as it is executed on this machine, and its engine.

    All ranks get the weights of the first one; `load_weights` replaces the new ones before the
    engine takes the model. For `sequences_before` see `choose_micro_batches`.

    Raises:
        ConfigError: what the settings ask for cannot work here, or does not fit into the memory.
    """
    torch.manual_seed(settings.seed)
    model = build_model(settings, ds_config, ranks)
    if load_weights is not None:
        load_weights(model)
    with refused_once(ranks):
        if isinstance(model, TransformersModel):
            model.check(settings.data.sequence_length)
        micro_batches = choose_micro_batches(
            settings, ds_config, ranks, model.execution, model=model, before=sequences_before
        )
    return Engine(model, settings, micro_batches.filled_in(ds_config), ranks, micro_batches)
