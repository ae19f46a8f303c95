# For type checkers alone: an export carries the trainer's file under this name.
from pretrain.model.positions import POSITION_ENCODINGS as POSITION_ENCODINGS
from pretrain.model.positions import BertAbsolute as BertAbsolute
