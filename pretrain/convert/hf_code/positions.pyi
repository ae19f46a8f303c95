# For type checkers alone: an export carries the trainer's file under this name.
from pretrain.model.positions import POSITION_ENCODINGS as POSITION_ENCODINGS
from pretrain.model.positions import PositionEncoding as PositionEncoding
from pretrain.model.positions import PositionSettings as PositionSettings
from pretrain.model.positions import PositionTerms as PositionTerms
from pretrain.model.positions import transform_query_key as transform_query_key
