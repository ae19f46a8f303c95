"""Which parameters decay, and which tables of positions learn at a rate of their own."""

from typing import Any

from torch import nn

from pretrain.config.errors import ConfigError
from pretrain.config.settings import OptimizerSettings, RunSettings
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.position_encoding import PositionEncoding
from pretrain.model.shapes import shapes_only


def parameter_groups(model: nn.Module, settings: OptimizerSettings) -> list[dict[str, Any]]:
    """Split the parameters by weight decay and by learning rate.

    Vectors (biases, norms, the output bias) do not decay, matrices and tables do, as in BERT;
    `decay_everything` decays all, as the TUPE authors' trainer does.

    `learning_rate_factor` of a group multiplies the rate of the schedule. AdamW subtracts rate x
    decay x weight, so the decay of a table with a rate of its own is divided by the factor: it
    decays as fast as other weights.
    """
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    factors = {
        id(table): float(vars(settings)[rate])
        for rate, tables in _positional_tables(model)
        for table in tables
    }
    for parameter in filter(lambda each: each.requires_grad, model.parameters()):
        decays = settings.decay_everything or parameter.ndim > 1
        factor = factors.get(id(parameter), 1.0)
        decay = settings.weight_decay / factor if decays else 0.0
        new: dict[str, Any] = {"params": [], "weight_decay": decay, "learning_rate_factor": factor}
        groups.setdefault((decay, factor), new)["params"].append(parameter)
    return list(groups.values())


def check_table_rates(settings: RunSettings) -> None:
    """Refuse a rate of a table that the positions of a run do not have.

    Raises:
        ConfigError: there is one.
    """
    with shapes_only():
        model = build_objective(settings.model, settings.objective, settings.electra)
    rates = {rate for rate, _ in _positional_tables(model)}
    for name in ("position_rate", "relative_rate"):
        rate = vars(settings.optimizer)[name]
        if rate != 1 and name not in rates:
            raise ConfigError(
                f"optimizer.{name}={rate:g} has no effect with model.positions="
                f"{settings.model.positions!r}, which has no such table; give --optimizer.{name} 1"
            )


def _positional_tables(model: nn.Module) -> list[tuple[str, list[nn.Parameter]]]:
    encodings = (each for each in model.modules() if isinstance(each, PositionEncoding))
    return [item for encoding in encodings for item in encoding.tables().items()]
