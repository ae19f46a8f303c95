"""Which parameters decay, and which tables of positions learn at a rate of their own."""

from typing import Any

from torch import nn

from pretrain.config.errors import ConfigError
from pretrain.config.settings import OptimizerSettings, RunSettings
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.shapes import shapes_only

# The settings of the learning rates of positional tables, by the name of the module.
TABLE_RATES = {"position_embeddings": "position_rate", "bucket_embeddings": "relative_rate"}


def parameter_groups(model: nn.Module, settings: OptimizerSettings) -> list[dict[str, Any]]:
    """Split the parameters by weight decay and by learning rate.

    Vectors (biases, norms, the output bias) do not decay, matrices and tables do, as in BERT;
    `decay_everything` decays all, as the TUPE authors' trainer does.

    `learning_rate_factor` of a group multiplies the rate of the schedule. AdamW subtracts rate x
    decay x weight, so the decay of a table with a rate of its own is divided by the factor: it
    decays as fast as other weights.
    """
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    factors = {f".{name}.weight": getattr(settings, rate) for name, rate in TABLE_RATES.items()}
    for name, parameter in model.named_parameters():
        decays = settings.decay_everything or parameter.ndim > 1
        factor = next((factors[end] for end in factors if name.endswith(end)), 1.0)
        decay = settings.weight_decay / factor if decays else 0.0
        group = groups.setdefault((decay, factor), {"params": []})
        group["params"].append(parameter)
        group.update(weight_decay=decay, learning_rate_factor=factor)
    return list(groups.values())


def check_table_rates(settings: RunSettings) -> None:
    """Refuse a rate of a table that the positions of a run do not have.

    Raises:
        ConfigError: there is one.
    """
    with shapes_only():
        model = build_objective(settings.model, settings.objective, settings.electra)
    tables = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    for table, name in TABLE_RATES.items():
        rate = getattr(settings.optimizer, name)
        if rate != 1 and table not in tables:
            raise ConfigError(
                f"optimizer.{name}={rate:g} has no effect with model.positions="
                f"{settings.model.positions!r}, which has no such table; remove it"
            )
