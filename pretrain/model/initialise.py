"""Every initial value of the model, in one place."""

from torch import nn


def initialise(model: nn.Module, standard_deviation: float) -> None:
    """Draw the weights as BERT does (Devlin et al. 2018; TUPE's code does the same).

    linear weights, embeddings (words, positions, relative buckets)    N(0, standard_deviation)
    linear biases, output bias, LayerNorm biases                       0
    LayerNorm weights                                                  1

    Draws from torch's global generator: seed it before. PLD's code divides the output weights of
    the branches by sqrt(2 L) besides; here PreLN and PostLN start from the same weights.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=standard_deviation)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
