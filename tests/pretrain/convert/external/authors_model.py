"""The TUPE authors' model in a few lines, for tests: what their code computes from its weights.

Written from their code's behaviour (github.com/guolinke/TUPE), one row and one head at a time, with
nothing of the package under test. Weights are named as in their checkpoints.
"""

import argparse
import math

import torch

from tests.pretrain.model.random_encodings import t5_bucket

WIDTH, HEADS, FEEDFORWARD, LAYERS, POSITIONS = 24, 3, 40, 2, 20
HEAD_WIDTH = WIDTH // HEADS
ENCODER, HEAD = "decoder.sentence_encoder.", "decoder.lm_head."


def shapes(rows, *, relative, pre):
    """Return the shape of every weight of a checkpoint."""
    found = {
        "embed_tokens.weight": (rows, WIDTH),
        "pos.weight": (POSITIONS + 1, WIDTH),
        **linear("pos_q_linear", WIDTH, WIDTH),
        **linear("pos_k_linear", WIDTH, WIDTH),
        **norm("pos_ln"),
        **norm("emb_layer_norm"),
    }
    if relative:
        found["relative_attention_bias.weight"] = (33, HEADS)
    if pre:
        found |= norm("emb_out_layer_norm")
    for number in range(LAYERS):
        layer = f"layers.{number}."
        found |= {
            f"{layer}self_attn.in_proj_weight": (3 * WIDTH, WIDTH),
            f"{layer}self_attn.in_proj_bias": (3 * WIDTH,),
            **linear(f"{layer}self_attn.out_proj", WIDTH, WIDTH),
            **linear(f"{layer}fc1", FEEDFORWARD, WIDTH),
            **linear(f"{layer}fc2", WIDTH, FEEDFORWARD),
            **norm(f"{layer}self_attn_layer_norm"),
            **norm(f"{layer}final_layer_norm"),
        }
    head = {"bias": (rows,), **linear("dense", WIDTH, WIDTH), **norm("layer_norm")}
    return {ENCODER + name: shape for name, shape in found.items()} | {
        HEAD + name: shape for name, shape in head.items()
    }


def linear(name, out, into):
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def norm(name):
    return {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}


def checkpoint(rows, *, relative=True, pre=False):
    """Return a checkpoint as fairseq stores one, of random weights."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: 0.4 * torch.randn(shape, generator=generator)
        for name, shape in shapes(rows, relative=relative, pre=pre).items()
    }
    weights[f"{HEAD}weight"] = weights[f"{ENCODER}embed_tokens.weight"]
    arguments = argparse.Namespace(
        arch="bert_base",
        encoder_attention_heads=HEADS,
        encoder_normalize_before=pre,
        embedding_normalize=True,
        activation_fn="gelu",
        dropout=0.1,
        attention_dropout=0.1,
        rel_pos=relative,
        adam_betas="(0.9, 0.999)",
    )
    return {"args": arguments, "model": weights, "extra_state": {"val_loss": None}}


def logits(state, row):
    """Return the logits at every position of one row of ids."""
    weights, pre = state["model"], state["args"].encoder_normalize_before
    take = Weights(weights, ENCODER)
    bias = positional_scores(take, len(row))
    if f"{ENCODER}relative_attention_bias.weight" in weights:
        bias = bias + relative_scores(take["relative_attention_bias.weight"], len(row))
    x = take.normed("emb_layer_norm", take["embed_tokens.weight"][row])
    for number in range(LAYERS):
        layer = Weights(weights, f"{ENCODER}layers.{number}.")
        branches = (
            (lambda v, w=layer: attended(w, v, bias), "self_attn_layer_norm"),
            (lambda v, w=layer: w.mapped("fc2", gelu(w.mapped("fc1", v))), "final_layer_norm"),
        )
        for branch, name in branches:
            x = x + branch(layer.normed(name, x)) if pre else layer.normed(name, x + branch(x))
    if pre:
        x = take.normed("emb_out_layer_norm", x)
    head = Weights(weights, HEAD)
    hidden = head.normed("layer_norm", gelu(head.mapped("dense", x)))
    return hidden @ head["weight"].T + head["bias"]


def positional_scores(take, length):
    """Return their absolute part, whose [CLS] they overwrite with scores of rows 0 and 1."""
    table = take.normed("pos_ln", take["pos.weight"])
    query, key = take.mapped("pos_q_linear", table), take.mapped("pos_k_linear", table)
    scores = torch.zeros(HEADS, length, length)
    for head in range(HEADS):
        part = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)

        def product(i, j, part=part):
            return query[i, part] @ key[j, part] / math.sqrt(2 * HEAD_WIDTH)

        for i in range(length):
            for j in range(length):
                scores[head, i, j] = product(i + 1, j + 1)
        scores[head, :, 0] = product(1, 1)
        scores[head, 0, :] = product(0, 0)
    return scores


def relative_scores(table, length):
    """Return their relative part: bucket 32 towards [CLS], bucket 16 from it."""
    scores = torch.zeros(HEADS, length, length)
    for i in range(length):
        for j in range(length):
            bucket = 16 if i == 0 else 32 if j == 0 else t5_bucket(j - i, 32, 128)
            scores[:, i, j] = table[bucket]
    return scores


def attended(layer, x, bias):
    weight, offset = layer["self_attn.in_proj_weight"], layer["self_attn.in_proj_bias"]
    query, key, value = (x @ weight.T + offset).split(WIDTH, dim=-1)
    mixed = []
    for head in range(HEADS):
        part = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
        scores = query[:, part] @ key[:, part].T / math.sqrt(2 * HEAD_WIDTH) + bias[head]
        mixed.append(scores.softmax(-1) @ value[:, part])
    return layer.mapped("self_attn.out_proj", torch.cat(mixed, -1))


def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


class Weights:
    """The weights under a prefix, and the two things that are done with a pair of them."""

    def __init__(self, weights, prefix):
        self.weights, self.prefix = weights, prefix

    def __getitem__(self, name):
        return self.weights[self.prefix + name]

    def mapped(self, name, x):
        return x @ self[f"{name}.weight"].T + self[f"{name}.bias"]

    def normed(self, name, x):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        return centred * scale * self[f"{name}.weight"] + self[f"{name}.bias"]
