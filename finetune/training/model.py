"""A pre-trained encoder with a head for a task. C = classes, or 1; else as in positions.py."""

import torch
from torch import Tensor, nn

from pretrain.config.settings import ModelSettings
from pretrain.model.encoder import Encoder, initialise
from pretrain.model.execution_plan import ExecutionPlan

ENCODER = "encoder."  # what names of its weights begin with in a pre-trained model


class TaskModel(nn.Module):
    """Encoder, and on its [CLS]: dropout, dense, tanh, dropout, linear.

    The head of the TUPE authors' code, in PyTorch's own initialisation as there (it is added after
    BERT's was drawn). Layer drop belongs to pre-training: every block runs here, in training too.
    """

    def __init__(self, model: ModelSettings, num_outputs: int, *, attention: str = "eager") -> None:
        """Build the model with new weights, drawn from torch's global generator: seed it before.

        Args:
            model: shape and variant; its `dropout` is that of the head too.
            num_outputs: classes, or 1 for a value.
            attention: name of a backend in pretrain/model/attention_backends.py.
        """
        super().__init__()
        self.encoder = Encoder(model, ExecutionPlan(attention=attention))
        initialise(self.encoder, model.initializer_range)
        self.dropout = nn.Dropout(model.dropout)
        self.dense = nn.Linear(model.width, model.width)
        self.output = nn.Linear(model.width, num_outputs)

    def forward(self, ids_BS: Tensor, lengths_B: Tensor) -> Tensor:
        """Return logits_BC in fp32; ids from `lengths_B` on are padding, whatever they are."""
        cls_B = torch.arange(0, ids_BS.numel(), ids_BS.shape[1], device=ids_BS.device)
        x_BD = self.encoder(ids_BS, lengths_B=lengths_B, positions_M=cls_B)
        # Not in bf16 under autocast: of 200 values 100 are equal then, classes tie, and ranks too.
        with torch.autocast(x_BD.device.type, enabled=False):
            hidden_BD = torch.tanh(self.dense(self.dropout(x_BD.float())))
            logits_BC: Tensor = self.output(self.dropout(hidden_BD))
        return logits_BC

    def load_encoder(self, weights: dict[str, Tensor]) -> None:
        """Take the encoder out of the weights of a `MaskedLanguageModel`."""
        self.encoder.load_state_dict(
            {
                name.removeprefix(ENCODER): weight
                for name, weight in weights.items()
                if name.startswith(ENCODER)
            }
        )
