"""A pre-trained encoder with a head for a task, and its outputs.

N = examples, C = classes, or 1; other letters: positions.py.
"""

import contextlib
import functools
from typing import Any, Literal

import numpy
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from finetune.training.batches import Batch, TokenRows, evaluation_batches
from pretrain.config.ds_config import computes_in_bf16
from pretrain.config.errors import ConfigError
from pretrain.config.settings import ModelSettings
from pretrain.config.settings.transformers_config import configuration_of, trusts_code
from pretrain.model.encoder import Encoder, initialise
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.heads import ClassificationHead
from pretrain.model.kernels.cpu_kernels import KernelError, load_cpu_kernels
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.model.transformers_encoder import TransformersEncoder, head_of, inputs_of, their_name

ENCODER = "encoder."  # prefix of its weights in a pre-trained model
HEAD = "classifier."  # and of the head's, here and in exports
WHOLE = "whole."  # of all weights of a model of transformers, here alone
EVALUATION_BATCH = 64


class TaskModel(nn.Module):
    """Encoder, and a classifier on its [CLS], in PyTorch's default initialisation.

    Layer drop is a method of pre-training: here every block runs, in training too.
    """

    def __init__(self, model: ModelSettings, num_outputs: int, *, attention: str = "eager") -> None:
        """Build the model with new weights, drawn from torch's global generator: seed it before.

        Args:
            model: shape and variant; its `dropout` is that of the head too.
            num_outputs: classes, or 1 for a value.
            attention: name of a backend in pretrain/model/attention_backends.py.
        """
        super().__init__()
        self.settings, self.num_outputs, self.output_name = model, num_outputs, f"{HEAD}output"
        self.encoder = Encoder(model, ExecutionPlan(attention=attention))
        initialise(self.encoder, model.initializer_range)
        self.classifier = ClassificationHead(model.width, num_outputs, model.dropout)

    def forward(self, ids_BS: Tensor, lengths_B: Tensor) -> Tensor:
        """Return logits_BC in fp32; ids from `lengths_B` on are padding of any value."""
        cls_B = torch.arange(0, ids_BS.numel(), ids_BS.shape[1], device=ids_BS.device)
        x_BD = self.encoder(ids_BS, lengths_B=lengths_B, positions_M=cls_B)
        # Not in bf16: of 200 outputs about 100 would be equal, which ties classes and ranks.
        with torch.autocast(x_BD.device.type, enabled=False):
            logits_BC: Tensor = self.classifier(x_BD.float())
        return logits_BC

    def load_encoder(self, weights: dict[str, Tensor]) -> None:
        """Load the encoder of a pre-trained model; that of ELECTRA is the discriminator's."""
        named = [(n.removeprefix(ENCODER), w) for n, w in weights.items() if n.startswith(ENCODER)]
        self.encoder.load_state_dict(dict(named))


class TransformersTaskModel(nn.Module):
    """A model of transformers with the head for sequences of its family.

    Attributes:
        settings: whose `transformers` is its configuration.
        num_outputs: classes, or 1 for a value.
        output_name: of the last layer.
    """

    def __init__(self, model: ModelSettings, num_outputs: int) -> None:
        """Build the model, drawing from torch's global generator; arguments as of `TaskModel`.

        Raises:
            ConfigError: transformers has no such head, or more than it belongs to the model.
        """
        from transformers import AutoModelForSequenceClassification

        super().__init__()
        assert isinstance(model.transformers, dict)
        kind, self.settings, self.num_outputs = model.transformers["model_type"], model, num_outputs
        is_code = trusts_code(model.transformers)
        if is_code or model.positions != "own":
            what = "code of its folder" if is_code else f"positions={model.positions!r} attached"
            raise ConfigError(f"a {kind} with {what} cannot be fine-tuned here")
        config = configuration_of(model.transformers)
        config.num_labels = num_outputs
        try:
            self.whole: Any = AutoModelForSequenceClassification.from_config(config)
        except ValueError:
            raise ConfigError(
                f"transformers has no classifier of a {kind}; it cannot be fine-tuned"
            ) from None
        layers = [
            (name, part)
            for name, part in head_of(self.whole).named_modules()
            if isinstance(part, nn.Linear) and part.out_features == num_outputs
        ]
        if not layers or layers[-1][1].bias is None:
            raise ConfigError(f"the head of a {kind} ends in no linear layer; Tupelo needs one")
        self.output_name, output = f"{WHOLE}{layers[-1][0]}", layers[-1][1]
        output.forward = functools.partial(_in_fp32, output)  # type: ignore[method-assign]

    @property
    def encoder(self) -> TransformersEncoder:
        """Return the model without its head; it shares all modules."""
        return TransformersEncoder(self.whole)

    def forward(self, ids_BS: Tensor, lengths_B: Tensor) -> Tensor:
        """Return logits_BC in fp32; see `TaskModel.forward`."""
        logits_BC: Tensor = self.whole(**inputs_of(ids_BS, lengths_B)).logits
        return logits_BC

    def load_encoder(self, weights: dict[str, Tensor]) -> None:
        """Load a pre-trained model: the encoder, but a pooler, which none has for masked words.

        A part of its head that the classifier has too, as ModernBERT's, is loaded as transformers
        does.
        """
        prefix = f"{self.whole.base_model_prefix}."
        theirs = {their_name(name, self.whole): weight for name, weight in weights.items()}
        unknown = self.whole.load_state_dict(theirs, strict=False).unexpected_keys
        if lost := [name for name in unknown if name.startswith(prefix)]:  # such as Funnel's
            kind = type(self.whole).__name__
            raise ConfigError(f"a {kind} has no {lost[0]}; this model cannot be fine-tuned")


def _in_fp32(layer: nn.Linear, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):  # see `TaskModel.forward`
        return F.linear(x.float(), layer.weight, layer.bias)


AnyTaskModel = TaskModel | TransformersTaskModel


def task_model(model: ModelSettings, num_outputs: int, *, attention: str = "eager") -> AnyTaskModel:
    """Build the model of a task; that of transformers chooses its attention.

    Raises:
        ConfigError: see `TransformersTaskModel`.
    """
    if model.transformers is not None:
        return TransformersTaskModel(model, num_outputs)
    return TaskModel(model, num_outputs, attention=attention)


def uses_bf16(precision: Literal["auto", "bf16", "fp32"], device: torch.device) -> bool:
    """Return whether matrix products are in bf16; see `Protocol.precision`."""
    kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
    return precision == "bf16" or (precision == "auto" and computes_in_bf16(kind))


def attention_on(device: torch.device, model: ModelSettings) -> str:
    """Return the attention backend of a device, for `TaskModel`."""
    if device.type == "cuda":
        return "sdpa"  # PyTorch's kernels accept the padding and bias of every variant
    encoding = POSITION_ENCODINGS.get(model.positions)
    if encoding is not None and not encoding.has_relative_keys:
        with contextlib.suppress(KernelError):
            load_cpu_kernels()
            return "fused"
    return "eager"


def logits_of_batch(model: AnyTaskModel, batch: Batch, *, uses_bf16: bool) -> Tensor:
    """Return logits_BC in fp32, on the device of the model."""
    device = next(model.parameters()).device
    ids_BS, lengths_B = (tensor.to(device, non_blocking=True) for tensor in batch)
    with torch.autocast(device.type, torch.bfloat16, enabled=uses_bf16):
        logits_BC: Tensor = model(ids_BS, lengths_B)
    return logits_BC


@torch.no_grad()
def logits_of_rows(
    model: AnyTaskModel, rows: TokenRows, *, uses_bf16: bool
) -> NDArray[numpy.float32]:
    """Return the logits of every row in its order, N x C, in evaluation mode."""
    model.eval()
    found = numpy.empty((len(rows), model.num_outputs), dtype=numpy.float32)
    for numbers in evaluation_batches(rows.lengths, EVALUATION_BATCH):
        logits_BC = logits_of_batch(model, rows.batch(numbers), uses_bf16=uses_bf16)
        found[numbers] = logits_BC.cpu().numpy()
    return found
