"""The settings of a launch, checked against each other and against the machine.

A recipe is checked when it is read. This is what can be known only together with the DeepSpeed
JSON, the number of ranks and the device, and before data or model are touched.
"""

import argparse
from typing import Any, Literal

from pydantic_settings import CliSettingsSource

from pretrain.config.ds_config import fill_ds_config, lift_layer_drop, read_ds_config
from pretrain.config.recipe import read_settings
from pretrain.config.settings import RunSettings
from pretrain.distributed.deepspeed_library import check_ds_config
from pretrain.distributed.ranks import Ranks
from pretrain.engine.execution import plan_execution, this_machine
from pretrain.engine.optimizers import checked_optimizer
from pretrain.model.cost import parameters_by_group
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
    checked_optimizer(settings.optimizer, device, ds_config)
    parameters_by_group(settings.model)  # builds the model without memory: refuses unknown parts
    filled = fill_ds_config(ds_config, settings, world_size=ranks.world_size, device=device)
    check_ds_config(filled)
    if device == ranks.device:
        plan_execution(settings, this_machine(filled, device))
    return settings, filled
