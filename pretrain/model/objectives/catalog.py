"""The objectives by name. A new one is a subclass of `Objective` and a line of OBJECTIVES."""

from pretrain.config.errors import ConfigError, lookup
from pretrain.config.settings import (
    DEFAULT_OBJECTIVE,
    REPLACED_TOKEN_DETECTION,
    ElectraSettings,
    ModelSettings,
)
from pretrain.model.execution_plan import PLAIN, ExecutionPlan
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.model.objectives.objective import Objective
from pretrain.model.objectives.replaced_tokens import ReplacedTokenDetection
from pretrain.model.objectives.transformers_model import TransformersModel

OBJECTIVES: dict[str, type[Objective]] = {
    DEFAULT_OBJECTIVE: MaskedLanguageModel,
    REPLACED_TOKEN_DETECTION: ReplacedTokenDetection,
}


def build_objective(
    model: ModelSettings,
    objective: str = DEFAULT_OBJECTIVE,
    electra: ElectraSettings | None = None,
    execution: ExecutionPlan = PLAIN,
) -> Objective:
    """Build the objective of a run, drawing its weights from torch's global generator.

    Raises:
        ConfigError: there is no objective of this name, the settings do not fit together, or a
            parameter is a scalar.
    """
    built = objective_of(model, objective).build(model, electra, execution)
    for name, parameter in built.named_parameters():
        if parameter.ndim == 0:
            raise ConfigError(
                f"the parameter {name} has no dimension, and DeepSpeed divides and broadcasts "
                "rows; make it one element, of shape (1,)"
            )
    return built


def objective_of(model: ModelSettings, name: str) -> type[Objective]:
    """Return the class of an objective; of models of transformers there is one.

    Raises:
        ConfigError: there is no objective of this name.
    """
    if model.transformers is not None:
        return TransformersModel
    return lookup(OBJECTIVES, name, setting="objective")
