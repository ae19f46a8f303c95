"""Attention with an encoding is the loop over its equation, with all gradients."""

import functools
import math

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from pretrain.config.errors import ConfigError
from pretrain.config.settings import EncodingSettings
from pretrain.model.attention_backends import ATTENTION_BACKENDS
from pretrain.model.encoder import Encoder, build_position_encoding
from pretrain.model.kernels.cpu_kernels import obstacle_to_cpu_kernels
from pretrain.model.position_baselines import alibi_slopes
from pretrain.model.position_encoding import PositionSettings
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.model.torch_attention import AttentionInputs
from tests.pretrain.model.random_encodings import (
    model_settings,
    projected,
    random_encoding,
    t5_bucket,
    untied,
)

BATCH, LENGTH, LAYERS, HEADS, HEAD_WIDTH = 2, 7, 3, 3, 16
CLIP = 3
ENCODINGS = ["nope", "t5", "alibi", "tupe-a-table", "tupe-r-parametric", "shaw"]
FUSED = ["fused"] * (obstacle_to_cpu_kernels() is None)
BACKENDS = ["eager", "sdpa", *FUSED, "triton"]


def settings(positions, **model):
    values = {
        **{"positions": positions, "num_layers": LAYERS, "width": HEADS * HEAD_WIDTH},
        **{"num_heads": HEADS, "relative_buckets": 8, "max_sequence_length": 32},
        "relative_max_distance": 12,
        **({"relative_clip": CLIP} if positions == "shaw" else {}),
        **model,
    }
    return model_settings(**values)


def encoding_for(positions):
    return random_encoding(settings(positions), std=0.5)


def parametric(encoding, head, i, j):
    """TUPE-R with b_{j-i} = (r F^Q)(r F^K)^T / sqrt(2d): row and column of [CLS] are theta."""
    if i == 0:
        return untied(encoding, head, -2, -2)
    if j == 0:
        return untied(encoding, head, -1, -1)
    r = encoding.relative.bucket_embeddings.weight[t5_bucket(j - i)]
    query, key = projected(encoding.relative, r, head)
    return untied(encoding, head, i, j) + query @ key / math.sqrt(2 * HEAD_WIDTH)


def free(encoding, head, i, j):
    """A[head, i, j]; theta_1 and theta_2 are two of the entries that they replace."""
    table = encoding.position_embeddings.weight
    rows = len(table) // HEADS * head
    if i == 0:
        return table[rows, 0]
    return table[rows + 1, 0] if j == 0 else table[rows + i, j]


SLOPES = [2**-4, 2**-8, 2**-2]  # of three heads: those of two, then the first of four


def score(encoding, positions, query, key, *, layer, head, i, j):
    """alpha_ij of one pair."""
    if positions == "shaw":
        distance = max(-CLIP, min(CLIP, j - i))
        table = encoding.layers[layer].bucket_embeddings.weight
        return query @ (key + table[distance + CLIP]) / math.sqrt(HEAD_WIDTH)
    if positions in ("tupe-a-table", "tupe-r-parametric"):
        term = {"tupe-a-table": free, "tupe-r-parametric": parametric}[positions]
        return query @ key / math.sqrt(2 * HEAD_WIDTH) + term(encoding, head, i, j)
    content = query @ key / math.sqrt(HEAD_WIDTH)
    if positions == "t5":
        return content + encoding.relative.bucket_embeddings.weight[t5_bucket(j - i), head]
    return content - (SLOPES[head] * abs(j - i) if positions == "alibi" else 0)


def attended(encoding, positions, qkv, lengths, layer):
    """Attention by loops over rows, heads, queries and keys."""
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    output = []
    for row in range(BATCH):
        for head in range(HEADS):
            for i in range(LENGTH):
                given = {"layer": layer, "head": head, "i": i}
                scores = [
                    score(encoding, positions, q[row, head, i], k[row, head, j], j=j, **given)
                    for j in range(int(lengths[row]))
                ]
                weights = torch.stack(scores).exp()
                output.append(weights @ v[row, head, : len(weights)] / weights.sum())
    return torch.stack(output).view(BATCH, HEADS, LENGTH, HEAD_WIDTH)


@functools.cache
def expected(positions, lengths, layer):
    """Return output, and gradients of queries, keys, values and parameters, in fp64."""
    encoding, (qkv, upstream) = encoding_for(positions).double(), inputs_and_upstream()
    qkv = qkv.double().requires_grad_()
    output = attended(encoding, positions, qkv, lengths, layer)
    leaves = [qkv, *encoding.parameters()]
    loss = (output * upstream.double()).sum()
    return output.detach(), torch.autograd.grad(loss, leaves, allow_unused=True)


def inputs_and_upstream():
    generator = torch.Generator().manual_seed(1)
    projected = torch.randn(BATCH, LENGTH, 3, HEADS, HEAD_WIDTH, generator=generator)
    upstream = torch.randn(BATCH, HEADS, LENGTH, HEAD_WIDTH, generator=generator)
    return projected, upstream


def close(found, expected):
    """fp32 through sums of a few hundred numbers, the reference in fp64."""
    distance = (found.double() - expected).norm() / expected.norm().clamp(min=1e-3)
    return float(distance.detach()) < 2e-5


@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (LENGTH, 4)])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("positions", ENCODINGS)
def test_a_backend_is_the_loop_over_the_equation(positions, backend, lengths):
    if positions == "shaw" and backend in ("fused", "triton"):
        pytest.skip("refused by plan_execution")
    encoding, layer, (qkv, upstream) = encoding_for(positions), 1, inputs_and_upstream()
    qkv = qkv.requires_grad_()
    terms = encoding.of_layer(encoding.terms(LENGTH, device="cpu"), layer, LENGTH)
    inputs = AttentionInputs(qkv, terms, encoding.score_scale)
    lengths_B = torch.tensor(lengths, dtype=torch.int32)
    found = ATTENTION_BACKENDS[backend](inputs._replace(lengths_B=lengths_B))
    leaves = [qkv, *encoding.parameters()]
    gradients = torch.autograd.grad((found * upstream).sum(), leaves, allow_unused=True)
    output, true_gradients = expected(positions, lengths, layer)
    assert close(found, output)
    for gradient, true in zip(gradients, true_gradients, strict=True):
        assert (gradient is None) == (true is None)
        assert gradient is None or close(gradient, true)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 7, 8, 12, 16, 20])
def test_slopes_are_those_of_the_published_code_for_any_number_of_heads(num_heads):
    """Bloom's function adds slope x j, from which softmax cannot tell -slope (i - j)."""
    theirs = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(alibi_slopes(num_heads), theirs, rtol=1e-6, atol=0)


def test_each_block_keeps_its_own_relative_keys_while_others_are_dropped():
    torch.manual_seed(0)
    encoder = Encoder(settings("shaw")).double()
    tables = [table.bucket_embeddings.weight for table in encoder.positions.layers]
    ids = torch.randint(5, 1000, (2, LENGTH))
    scales = [1.5, 0.0, 1.25]
    encoder(ids, scales).square().sum().backward()
    assert tables[1].grad is None and all(tables[layer].grad.any() for layer in (0, 2))
    x = encoder.embedding_norm(encoder.token_embeddings(ids))
    for layer in (0, 2):
        keys = tables[layer][torch.arange(-CLIP, CLIP + 1) + CLIP]
        terms = encoder.positions.terms(LENGTH, device="cpu")._replace(relative_key_RH=keys)
        x = encoder.blocks[layer](x, terms, scales[layer])
    torch.testing.assert_close(encoder(ids, scales), encoder.final_norm(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "value", "readers"),
    [
        *(("relative_clip", 4, "shaw"), ("rotary_base", 500.0, "rope")),
        ("cls_reset", "reference", "tupe-r"),
        ("position_projection_bias", True, "bert-ad, tupe-a, tupe-r, tupe-a-tie-cls.*"),
    ],
)
def test_a_setting_of_another_encoding_is_refused(name, value, readers):
    message = f"model.{name}={value} has no effect with .*'t5', but with {readers}; remove it"
    with pytest.raises(ConfigError, match=message):
        build_position_encoding(settings("t5", **{name: value}))


@pytest.mark.parametrize("positions", POSITION_ENCODINGS)
def test_an_encoding_reads_the_settings_that_it_names(positions):
    class Noted(PositionSettings):
        def __getattribute__(self, name):
            read.add(name)
            return super().__getattribute__(name)

    read, kind = set(), POSITION_ENCODINGS[positions]
    kind(Noted(**settings(positions).model_dump()))
    assert read & EncodingSettings.model_fields.keys() == set(kind.own_settings)


def test_projected_distances_vary_as_much_as_the_untied_correlation():
    """At the start, for which the factor 1 / sqrt(2d) and the LayerNorm are there."""
    shape = {"width": 256, "num_heads": 4, "max_sequence_length": 512, "relative_buckets": 1024}
    torch.manual_seed(0)
    encoding = build_position_encoding(settings("tupe-r-parametric", **shape))
    for module in (encoding.projected, encoding.relative):
        for linear in (module.query, module.key):
            torch.nn.init.normal_(linear.weight, std=0.02)
    words, _, _ = encoding.words_and_thetas(512)
    each_distance = encoding.relative(512)[:, 256]  # -256 to 255, a bucket each
    assert float((each_distance.std() / words.std()).detach()) == pytest.approx(1, abs=0.1)
