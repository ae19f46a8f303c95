"""Every setting of a pre-training run, defined once: name, type, default, bounds, description.

A run is one frozen `RunSettings`; recipe.py reads it from a recipe and the command line. ZeRO stage
and precision are in the DeepSpeed JSON that `engine.ds_config` names.
"""

from data_prep.settings import Section as Section
from pretrain.config.settings.data import OF_TEXT as OF_TEXT
from pretrain.config.settings.data import DataSettings as DataSettings
from pretrain.config.settings.layer_drop import LayerDropSettings as LayerDropSettings
from pretrain.config.settings.model import DEFAULT_OBJECTIVE as DEFAULT_OBJECTIVE
from pretrain.config.settings.model import REPLACED_TOKEN_DETECTION as REPLACED_TOKEN_DETECTION
from pretrain.config.settings.model import ElectraSettings as ElectraSettings
from pretrain.config.settings.model import EncodingSettings as EncodingSettings
from pretrain.config.settings.model import ModelSettings as ModelSettings
from pretrain.config.settings.run import RunSettings as RunSettings
from pretrain.config.settings.stored import as_json as as_json
from pretrain.config.settings.stored import explained as explained
from pretrain.config.settings.stored import flat as flat
from pretrain.config.settings.stored import stored_settings as stored_settings
from pretrain.config.settings.training import CheckpointSettings as CheckpointSettings
from pretrain.config.settings.training import LearningRateSettings as LearningRateSettings
from pretrain.config.settings.training import OptimizerSettings as OptimizerSettings
from pretrain.config.settings.training import TroubleSettings as TroubleSettings
