"""The outputs of a model for rows, in training, on development sets and for new texts."""

from typing import Literal

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from finetune.training.batches import Batch, TokenRows, evaluation_batches
from finetune.training.model import TaskModel
from pretrain.config.ds_config import computes_in_bf16

EVALUATION_BATCH = 64


def uses_bf16(precision: Literal["auto", "bf16", "fp32"], device: torch.device) -> bool:
    """Return whether matrix products are in bf16; see `Protocol.precision`."""
    kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
    return precision == "bf16" or (precision == "auto" and computes_in_bf16(kind))


def attention_on(device: torch.device) -> str:
    """Return the attention backend of a device, for `TaskModel`."""
    # PyTorch's kernels accept the padding and bias of every variant; slower on a CPU.
    return "sdpa" if device.type == "cuda" else "eager"


def logits_of_batch(model: TaskModel, batch: Batch, *, uses_bf16: bool) -> Tensor:
    """Return logits_BC in fp32, on the device of the model."""
    device = model.classifier.output.weight.device
    ids_BS, lengths_B = (tensor.to(device, non_blocking=True) for tensor in batch)
    with torch.autocast(device.type, torch.bfloat16, enabled=uses_bf16):
        logits_BC: Tensor = model(ids_BS, lengths_B)
    return logits_BC


@torch.no_grad()
def logits_of_rows(model: TaskModel, rows: TokenRows, *, uses_bf16: bool) -> NDArray[numpy.float32]:
    """Return the logits of every row in its order, N x C, in evaluation mode."""
    model.eval()
    found = numpy.empty((len(rows), model.classifier.output.out_features), dtype=numpy.float32)
    for numbers in evaluation_batches(rows.lengths, EVALUATION_BATCH):
        logits_BC = logits_of_batch(model, rows.batch(numbers), uses_bf16=uses_bf16)
        found[numbers] = logits_BC.cpu().numpy()
    return found
