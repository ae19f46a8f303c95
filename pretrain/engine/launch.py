"""The set-up of a launch: settings checked against each other and the machine, then the engine.

A recipe is checked when it is read. `checked_settings` refuses what can be known only with the
DeepSpeed JSON, the number of ranks and the device, before data or model are touched.
"""

import argparse
from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic_settings import CliSettingsSource

from pretrain.config.ds_config import fill_ds_config, lift_layer_drop, read_ds_config
from pretrain.config.recipe import read_settings
from pretrain.config.settings import RunSettings
from pretrain.distributed.deepspeed_library import check_ds_config
from pretrain.distributed.ranks import Ranks
from pretrain.engine.engine import Engine
from pretrain.engine.execution import build_model, plan_execution, this_machine
from pretrain.model.cost import parameters_by_group
from pretrain.model.objectives import Objective
from pretrain.schedules.layer_drop import check_layer_drop
from pretrain.schedules.learning_rate import check_learning_rate

Device = Literal["cpu", "cuda"]


def checked_settings(
    arguments: argparse.Namespace, ranks: Ranks, device: Device
) -> tuple[RunSettings, dict[str, Any]]:
    """Return the settings and the DeepSpeed configuration of the run, checked against each other.

    Args:
        arguments: of a parser to which `add_settings` has added what its `source` reads.
        ranks: for which "auto" is decided.
        device: that must be able to execute them.

    Raises:
        ConfigError: something does not exist or does not go together.
    """
    source: CliSettingsSource[argparse.ArgumentParser] = arguments.source
    settings = read_settings(arguments, source)
    ds_config = read_ds_config(settings.engine.ds_config, ranks.device, world_size=ranks.world_size)
    layer_drop, note = lift_layer_drop(ds_config, settings.layer_drop)
    if note:
        print(note)
    settings = settings.model_copy(update={"layer_drop": layer_drop})
    check_layer_drop(settings.layer_drop)
    check_learning_rate(settings.learning_rate)
    # Builds the model without memory: refuses unknown parts.
    parameters_by_group(settings.model, settings.objective)
    filled = fill_ds_config(ds_config, settings, world_size=ranks.world_size, device=device)
    check_ds_config(filled)
    if device == ranks.device:
        plan_execution(settings, this_machine(filled, device))
    return settings, filled


def build_engine(
    settings: RunSettings,
    ds_config: dict[str, Any],
    ranks: Ranks,
    *,
    load_weights: Callable[[Objective], None] | None = None,
) -> Engine:
    """Build the model from the seed of the run, as it is executed on this machine, and its engine.

    Args:
        settings: of the run.
        ds_config: filled by `fill_ds_config`.
        ranks: from `start_ranks`; all of them get the weights of the first one.
        load_weights: replaces the new weights, before the engine takes the model.

    Raises:
        ConfigError: what the settings ask for cannot work here.
    """
    torch.manual_seed(settings.seed)
    model = build_model(settings, ds_config, ranks.device)
    if load_weights is not None:
        load_weights(model)
    return Engine(model, settings, ds_config, ranks)
