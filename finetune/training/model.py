"""A pre-trained encoder with a head for a task. C = classes, or 1; other letters: positions.py."""

import torch
from torch import Tensor, nn

from pretrain.config.settings import ModelSettings
from pretrain.model.encoder import Encoder, initialise
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.heads import ClassificationHead

ENCODER = "encoder."  # prefix of its weights in a pre-trained model
HEAD = "classifier."  # and of the head's, here and in exports


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
        self.settings = model
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
        self.encoder.load_state_dict(
            {
                name.removeprefix(ENCODER): weight
                for name, weight in weights.items()
                if name.startswith(ENCODER)
            }
        )
