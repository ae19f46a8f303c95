"""Every setting of a pre-training run, defined once: name, type, default, bounds, description.

A run is one frozen `RunSettings`; recipe.py reads it from a recipe and the command line. ZeRO stage
and precision are in the DeepSpeed JSON that `engine.ds_config` names.
"""

from pretrain.config.settings.data import OF_TEXT, DataSettings
from pretrain.config.settings.layer_drop import LayerDropSettings, with_default_gamma
from pretrain.config.settings.model import (
    DEFAULT_OBJECTIVE,
    REPLACED_TOKEN_DETECTION,
    ElectraSettings,
    EncodingSettings,
    ModelSettings,
)
from pretrain.config.settings.run import RunSettings, sections
from pretrain.config.settings.section import Section
from pretrain.config.settings.stored import as_json, explain, flat, stored_settings
from pretrain.config.settings.training import (
    BatchSettings,
    CheckpointSettings,
    EngineSettings,
    EvaluationSettings,
    LearningRateSettings,
    OptimizerSettings,
    TroubleSettings,
)

__all__ = [
    "BatchSettings",
    "CheckpointSettings",
    "DEFAULT_OBJECTIVE",
    "DataSettings",
    "ElectraSettings",
    "EncodingSettings",
    "EngineSettings",
    "EvaluationSettings",
    "LayerDropSettings",
    "LearningRateSettings",
    "ModelSettings",
    "OF_TEXT",
    "OptimizerSettings",
    "REPLACED_TOKEN_DETECTION",
    "RunSettings",
    "Section",
    "TroubleSettings",
    "as_json",
    "explain",
    "flat",
    "sections",
    "stored_settings",
    "with_default_gamma",
]
