"""Position encodings with random weights, and terms of their equations for one pair."""

import math

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


def t5_bucket(distance, num_buckets=8, max_distance=12):
    """T5's bucket of one distance, with if instead of where."""
    half, exact, size = num_buckets // 2, num_buckets // 4, abs(distance)
    share = math.log(max(size, 1) / exact) / math.log(max_distance / exact)
    found = size if size < exact else min(half - 1, exact + int(share * (half - exact)))
    return found + (half if distance > 0 else 0)


def projected(module, row, head):
    """LayerNorm of one vector by its formula, and its projections for one head."""
    centred = row - row.mean()
    norm = centred / (centred.square().mean() + module.norm.eps).sqrt()
    normed = norm * module.norm.weight + module.norm.bias
    part = slice(head * module.head_width, (head + 1) * module.head_width)
    return [
        layer.weight[part] @ normed + (0 if layer.bias is None else layer.bias[part])
        for layer in (module.query, module.key)
    ]


def untied(encoding, head, p_i, p_j):
    """(p_i U^Q)(p_j U^K)^T / sqrt(2d) of two rows of the table."""
    table = encoding.projected.position_embeddings.weight
    query, _ = projected(encoding.projected, table[p_i], head)
    _, key = projected(encoding.projected, table[p_j], head)
    return query @ key / math.sqrt(2 * len(query))
