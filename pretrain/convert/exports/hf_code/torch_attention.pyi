# For type checkers alone: an export carries the trainer's file under this name.
from pretrain.model.torch_attention import torch_attention as torch_attention
