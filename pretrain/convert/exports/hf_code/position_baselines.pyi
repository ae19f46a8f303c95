# For type checkers alone: an export carries the trainer's file under this name.
from pretrain.model.position_baselines import NoPositions as NoPositions
