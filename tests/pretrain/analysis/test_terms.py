"""The terms of attention scores, against a loop over queries and keys."""

import math

import numpy
import pytest
import torch

from pretrain.analysis.subjects import inputs_of
from pretrain.analysis.terms import TERMS, first_parts, measure_terms
from tests.pretrain.analysis.small_models import LENGTH, batches, small_model

HEADS, WIDTH = 2, 16  # of tiny_cpu


def variance(values):
    """Return the variance of the scores of one query over its keys."""
    mean = sum(values) / len(values)
    return sum((one - mean) ** 2 for one in values) / len(values)


def scores_by_hand(model, x, y, head):
    """Return x_i W^Q (y_j W^K)^T / sqrt(d) of one head, by loops, without biases."""
    weight = model.encoder.blocks[0].attention.query_key_value.weight.detach()
    rows = slice(head * WIDTH, (head + 1) * WIDTH)
    query, key = x @ weight[:32][rows].T, y @ weight[32:64][rows].T
    scale = model.encoder.positions.score_scale
    return numpy.array(
        [[float(query[i] @ key[j]) * scale for j in range(LENGTH)] for i in range(LENGTH)]
    )


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_parts_of_the_first_input_add_up_to_it_and_are_linear(norm):
    model, (batch,) = small_model("--model.norm", norm, "--model.positions", "bert-a"), batches(3)
    ids = batch.ids_BS
    with inputs_of([model.encoder.blocks[0].attention]) as inputs:
        model.encoder(ids)
    parts = first_parts(model.encoder, ids)
    assert torch.allclose(sum(parts), inputs[0], atol=1e-12)
    # By hand, for one token: norms are linear once mean and deviation of the sum are known.
    encoder = model.encoder
    word = encoder.token_embeddings.weight[ids[1, 4]].detach()
    position = encoder.positions.position_embeddings.weight[4].detach()
    constant = torch.zeros(32, dtype=torch.float64)
    norms = [encoder.embedding_norm]
    if norm == "pre":
        norms.append(encoder.blocks[0].attention_norm)
    for one in norms:
        whole = word + position + constant
        deviation = math.sqrt(((whole - whole.mean()) ** 2).mean() + one.eps)
        word, position, constant = (
            (part - part.mean()) / deviation * one.weight.detach()
            for part in (word, position, constant)
        )
        constant = constant + one.bias.detach()
    assert torch.allclose(parts.word[1, 4], word)
    assert torch.allclose(parts.position.expand(3, LENGTH, 32)[1, 4], position)
    assert torch.allclose(parts.constant.expand(3, LENGTH, 32)[1, 4], constant)


@pytest.mark.parametrize(("positions", "norm"), [("bert-a", "pre"), ("bert-r", "post")])
def test_terms_of_the_first_block_equal_loops_over_queries_and_keys(positions, norm):
    words = ("--model.norm", norm, "--model.positions", positions)
    model, made = small_model(*words), batches(2, 2, filled=1)
    with torch.no_grad():
        found = measure_terms(model, made)
        for head in range(HEADS):
            sums = numpy.zeros(len(TERMS))
            for batch, rows in zip(made, (2, 1), strict=True):  # the last row fills the batch
                parts = first_parts(model.encoder, batch.ids_BS)
                parts = [part.expand(2, LENGTH, 32) for part in parts]
                bias = model.encoder.blocks[0].attention.query_key_value.bias
                for row in range(rows):
                    word, position, constant = (part[row] for part in parts)
                    terms = [
                        scores_by_hand(model, x, y, head)
                        for x in (word, position)
                        for y in (word, position)
                    ]
                    rows_of_head = slice(head * WIDTH, (head + 1) * WIDTH)
                    weight = model.encoder.blocks[0].attention.query_key_value.weight
                    query = constant @ weight[:32][rows_of_head].T + bias[:32][rows_of_head]
                    key = (word + position + constant) @ weight[32:64][rows_of_head].T
                    scale = model.encoder.positions.score_scale
                    terms.append((query @ key.T * scale).numpy())
                    terms[-1] += scores_by_hand(model, word + position, constant, head)
                    relative = model.encoder.positions.attention_bias(LENGTH)
                    zeros = numpy.zeros((LENGTH, LENGTH))
                    terms.append(zeros if relative is None else relative[head].double().numpy())
                    for query_place in range(LENGTH):
                        sums += [variance(list(term[query_place])) for term in terms]
            expected = sums / (3 * LENGTH)
            assert found[head] == pytest.approx(expected.tolist(), rel=1e-5)
