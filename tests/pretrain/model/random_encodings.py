"""Position encodings with random weights."""

import torch

from pretrain.config.recipe import load_settings
from pretrain.model.encoder import build_position_encoding


def model_settings(**model):
    """Return the model of tiny_cpu with other values."""
    words = [word for name, value in model.items() for word in (f"--model.{name}", str(value))]
    return load_settings("tiny_cpu", words).model


def random_encoding(settings, *, std):
    """Return a position encoding with normal weights, always the same."""
    torch.manual_seed(0)
    encoding = build_position_encoding(settings)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return encoding
