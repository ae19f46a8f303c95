"""A pre-trained encoder with a head for a task, and its outputs.

N = outputs, one for each example, or where tokens are tagged or begin answers one for each of them;
C = classes, or 1; other letters: positions.py.
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
from finetune.training.targets import Tags, Target
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
    """Encoder, and a classifier on its [CLS], in PyTorch's default initialisation, or on tokens.

    Layer drop is a method of pre-training: here every block runs, in training too.
    """

    def __init__(self, model: ModelSettings, target: Target, *, attention: str = "eager") -> None:
        """Build the model with new weights, drawn from torch's global generator: seed it before.

        The dropout of `model` is that of the head too.
        """
        super().__init__()
        self.settings, self.num_outputs, self._head = model, target.num_outputs, target.head
        self.encoder = Encoder(model, ExecutionPlan(attention=attention))
        initialise(self.encoder, model.initializer_range)
        self.dropout = nn.Dropout(model.dropout) if isinstance(target, Tags) else nn.Identity()
        if target.is_of_tokens:  # as BERT has it
            self.output_name, layer = target.head, nn.Linear(model.width, target.num_outputs)
            initialise(layer, model.initializer_range)
            self.add_module(target.head, layer)
        else:
            self.output_name = f"{HEAD}output"
            self.classifier = ClassificationHead(model.width, target.num_outputs, model.dropout)

    def forward(
        self, ids_BS: Tensor, lengths_B: Tensor, positions_M: Tensor | None = None
    ) -> Tensor:
        """Return logits_MC in fp32, by default of [CLS]; ids from `lengths_B` on are padding."""
        if positions_M is None:
            positions_M = torch.arange(0, ids_BS.numel(), ids_BS.shape[1], device=ids_BS.device)
        x_MD = self.encoder(ids_BS, lengths_B=lengths_B, positions_M=positions_M)
        # Not in bf16: of 200 outputs about 100 would be equal, which ties classes and ranks.
        with torch.autocast(x_MD.device.type, enabled=False):
            head = self.get_submodule(self._head)
            logits_MC: Tensor = head(self.dropout(x_MD.float()))
        return logits_MC

    def load_encoder(self, weights: dict[str, Tensor]) -> None:
        """Load the encoder of a pre-trained model; that of ELECTRA is the discriminator's."""
        named = [(n.removeprefix(ENCODER), w) for n, w in weights.items() if n.startswith(ENCODER)]
        self.encoder.load_state_dict(dict(named))


class TransformersTaskModel(nn.Module):
    """A model of transformers with the head of its family for sequences or tokens.

    Attributes:
        settings: whose `transformers` is its configuration.
        num_outputs: of the target.
        output_name: of the last layer.
    """

    def __init__(self, model: ModelSettings, target: Target) -> None:
        """Build the model, drawing from torch's global generator; arguments as of `TaskModel`.

        Raises:
            ConfigError: transformers has no such head, or more than it belongs to the model.
        """
        import transformers

        super().__init__()
        assert isinstance(model.transformers, dict)
        kind, self.settings = model.transformers["model_type"], model
        self.num_outputs, self._is_of_tokens = target.num_outputs, target.is_of_tokens
        is_code = trusts_code(model.transformers)
        if is_code or model.positions != "own":
            what = "code of its folder" if is_code else f"positions={model.positions!r} attached"
            raise ConfigError(f"a {kind} with {what} cannot be fine-tuned here")
        config = configuration_of(model.transformers)
        config.num_labels = target.num_outputs
        try:
            auto = getattr(transformers, f"AutoModelFor{target.architecture}")
            self.whole: Any = auto.from_config(config)
        except ValueError:
            raise ConfigError(
                f"transformers has no {kind} for {target.architecture}; it cannot be fine-tuned"
            ) from None
        layers = [
            (name, part)
            for name, part in head_of(self.whole).named_modules()
            if isinstance(part, nn.Linear) and part.out_features == target.num_outputs
        ]
        if not layers or layers[-1][1].bias is None:
            raise ConfigError(f"the head of a {kind} ends in no linear layer; Tupelo needs one")
        self.output_name, output = f"{WHOLE}{layers[-1][0]}", layers[-1][1]
        output.forward = functools.partial(_in_fp32, output)  # type: ignore[method-assign]

    @property
    def encoder(self) -> TransformersEncoder:
        """Return the model without its head; it shares all modules."""
        return TransformersEncoder(self.whole)

    def forward(
        self, ids_BS: Tensor, lengths_B: Tensor, positions_M: Tensor | None = None
    ) -> Tensor:
        """Return logits_MC in fp32; see `TaskModel.forward`."""
        found = self.whole(**inputs_of(ids_BS, lengths_B))
        if "start_logits" in found:
            logits: Tensor = torch.stack([found.start_logits, found.end_logits], -1)
        else:
            logits = found.logits
        return logits.flatten(0, 1)[positions_M] if self._is_of_tokens else logits

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


def task_model(model: ModelSettings, target: Target, *, attention: str = "eager") -> AnyTaskModel:
    """Build the model of a task; that of transformers chooses its attention."""
    if model.transformers is not None:
        return TransformersTaskModel(model, target)
    return TaskModel(model, target, attention=attention)


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
    """Return logits_MC in fp32, on the device of the model."""
    device = next(model.parameters()).device
    inputs = (tensor.to(device, non_blocking=True) for tensor in batch)
    with torch.autocast(device.type, torch.bfloat16, enabled=uses_bf16):
        logits_MC: Tensor = model(*inputs)
    return logits_MC


@torch.no_grad()
def logits_of_rows(
    model: AnyTaskModel, rows: TokenRows, *, uses_bf16: bool
) -> NDArray[numpy.float32]:
    """Return the logits of every row in its order, N x C, in evaluation mode."""
    model.eval()
    found = numpy.empty((rows.num_places.sum(), model.num_outputs), dtype=numpy.float32)
    for numbers in evaluation_batches(rows.lengths, EVALUATION_BATCH):
        logits_MC = logits_of_batch(model, rows.batch(numbers), uses_bf16=uses_bf16)
        found[rows.outputs_of(numbers)] = logits_MC.cpu().numpy()
    return found
