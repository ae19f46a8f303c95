# For type checkers alone: an export carries the trainer's file under this name.
from pretrain.model.position_encoding import PositionEncoding as PositionEncoding
from pretrain.model.position_encoding import PositionSettings as PositionSettings
from pretrain.model.position_encoding import PositionTerms as PositionTerms
from pretrain.model.position_encoding import Rotation as Rotation
from pretrain.model.position_encoding import transform_query_key as transform_query_key
