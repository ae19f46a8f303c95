"""Encodings against a double loop over the equations of their papers.

Those of test_position_equations.py are compared there, and in all backends.
"""

import cmath
import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from pretrain.config.errors import ConfigError
from pretrain.model.attention import Attention
from pretrain.model.encoder import Encoder, build_position_encoding
from pretrain.model.position_encoding import transform_query_key
from pretrain.model.position_tables import relative_bucket
from pretrain.model.positions import POSITION_ENCODINGS
from tests.pretrain.model.random_encodings import (
    model_settings,
    projected,
    random_encoding,
    t5_bucket,
    untied,
)

LENGTH, HEADS, HEAD_WIDTH, WIDTH = 7, 3, 4, 12
UNTIED = ("tupe-a", "tupe-r", "tupe-a-tie-cls", "tupe-r-tie-cls")


def settings(positions, **model):
    shape = {"width": WIDTH, "num_heads": HEADS, "max_sequence_length": 32}
    buckets = {"relative_buckets": 8, "relative_max_distance": 12}
    return model_settings(**{"positions": positions, **shape, **buckets, **model})


def encoding_for(positions, **model):
    return random_encoding(settings(positions, **model), std=1)


@torch.no_grad()
def turned(vector, position):
    """R(position) vector by RoFormer Eq. 12 to 15, its pairs being complex numbers."""
    half = len(vector) // 2
    result = vector.clone()
    for pair in range(half):
        angle = position * 10_000 ** (-2 * pair / len(vector))
        number = complex(float(vector[pair]), float(vector[pair + half])) * cmath.exp(1j * angle)
        result[pair], result[pair + half] = number.real, number.imag
    return result


@torch.no_grad()
def expected_bias(encoding, positions, cls_reset):
    """Equations 5 and 7 to 11, element by element; i and j count from 0."""
    expected = torch.zeros(HEADS, LENGTH, LENGTH)
    for head in range(HEADS):
        for i in range(LENGTH):
            for j in range(LENGTH):
                absolute = relative = 0.0
                from_cls, to_cls = i == 0, i != 0 and j == 0
                resets = positions in ("tupe-a", "tupe-r") and (from_cls or to_cls)
                if positions.startswith("tupe"):
                    p_i, p_j = (-2 if from_cls else -1,) * 2 if resets else (i, j)
                    absolute = float(untied(encoding, head, p_i, p_j))
                if positions in ("bert-r", "tupe-r", "tupe-r-tie-cls"):
                    buckets = encoding.relative.bucket_embeddings.weight
                    relative = float(buckets[t5_bucket(j - i), head])
                    if resets:
                        relative = 0.0
                        if cls_reset == "reference":
                            relative = float(buckets[4 if from_cls else 8, head])
                expected[head, i, j] = absolute + relative
    return expected


@pytest.mark.parametrize(
    ("positions", "own"),
    [
        *(("bert-r", {}), ("tupe-r", {"cls_reset": "reference"})),
        *((name, {"position_projection_bias": bias}) for name in UNTIED for bias in (False, True)),
    ],
)
def test_the_bias_is_that_of_a_double_loop_over_the_equations(positions, own):
    encoding = encoding_for(positions, **own)
    expected = expected_bias(encoding, positions, own.get("cls_reset"))
    # fp32 sums of 12 products
    torch.testing.assert_close(encoding.attention_bias(LENGTH), expected, rtol=1e-5, atol=1e-5)


def test_bert_a_adds_row_s_of_the_table_to_position_s_and_has_no_bias():
    encoding = encoding_for("bert-a")
    words = torch.randn(2, LENGTH, WIDTH)
    table = encoding.position_embeddings.weight
    for s in range(LENGTH):
        torch.testing.assert_close(
            encoding.add_to_embeddings(words)[:, s], words[:, s] + table[s], rtol=0, atol=0
        )
    assert encoding.attention_bias(LENGTH) is None


@pytest.mark.parametrize("positions", ["bert-a", "bert-r", "bert-ad", "tupe-a", "tupe-r", "rope"])
def test_attention_scores_are_the_sum_of_the_papers_dot_products(positions):
    """alpha_ij of TUPE Eq. 2, 7, 10, 11, Sec. 4.3, and of RoFormer Eq. 16, then the values."""
    encoding = encoding_for(positions)
    attention = Attention(settings(positions), encoding.score_scale).eval()
    x = torch.randn(1, LENGTH, WIDTH)
    num_products = {"bert-a": 1, "bert-r": 1, "bert-ad": 4, "rope": 1}
    divisor = num_products.get(positions, 2) * HEAD_WIDTH
    q, k, v = attention.query_key_value(x)[0].split(WIDTH, dim=-1)
    bias = encoding.attention_bias(LENGTH)
    mixed = torch.zeros(LENGTH, WIDTH)
    for head in range(HEADS):
        part = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
        for i in range(LENGTH):
            scores = torch.zeros(LENGTH)
            for j in range(LENGTH):
                query, key = q[i, part], k[j, part]
                if positions == "bert-ad":
                    table = encoding.projected.position_embeddings.weight
                    query = query + projected(encoding.projected, table[i], head)[0]
                    key = key + projected(encoding.projected, table[j], head)[1]
                if positions == "rope":
                    query, key = turned(query, i), turned(key, j)
                scores[j] = query @ key / math.sqrt(divisor)
                if bias is not None:
                    scores[j] += bias[head, i, j]
            mixed[i, part] = scores.softmax(-1) @ v[:, part]
    actual = attention(x, encoding.terms(LENGTH, device="cpu"))
    torch.testing.assert_close(actual[0], attention.output(mixed), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20), (18, 128)])
def test_buckets_are_those_of_t5(num_buckets, max_distance):
    distances = torch.arange(-600, 601)
    theirs = T5Attention._relative_position_bucket(
        distances, bidirectional=True, num_buckets=num_buckets, max_distance=max_distance
    )
    assert torch.equal(relative_bucket(distances, num_buckets, max_distance), theirs)


def test_theta_1_has_no_gradient_and_theta_2_has_one():
    """Eq. 9 makes row [CLS] constant, and softmax ignores a constant."""
    encoding = encoding_for("tupe-a").double()
    content = torch.randn(HEADS, LENGTH, LENGTH, dtype=torch.float64)
    weights = torch.softmax(content + encoding.attention_bias(LENGTH).double(), dim=-1)
    (weights * torch.randn_like(weights)).sum().backward()
    gradient = encoding.projected.position_embeddings.weight.grad
    assert gradient[-2].abs().max() < 1e-6  # fp32 rounding: the bias is fp32 by design
    assert gradient[-1].abs().max() > 1e-3


@pytest.mark.parametrize("positions", POSITION_ENCODINGS)
def test_rows_that_are_longer_than_a_table_of_positions_are_refused(positions):
    encoder = Encoder(settings(positions))
    assert encoder(torch.zeros(1, 32, dtype=torch.int64)).shape == (1, 32, WIDTH)
    for length in (33, 34):
        ids = torch.zeros(1, length, dtype=torch.int64)
        if "position_rate" not in encoder.positions.tables():
            assert encoder(ids).shape == (1, length, WIDTH)
        else:
            with pytest.raises(ValueError, match=f"{length} tokens, but there are 32 positions"):
                encoder(ids)


def test_the_bias_stays_fp32_under_autocast():
    for positions in ("bert-r", *UNTIED):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert encoding_for(positions).attention_bias(LENGTH).dtype == torch.float32


def rotated(q, k, **model):
    """Return queries and keys as `rope` transforms them."""
    encoding = encoding_for("rope", **model)
    terms = encoding.terms(q.shape[2], device="cpu")
    assert terms.bias_NSS is None and terms.query_key_NSH is None
    return transform_query_key(q, k, terms)


def queries_and_keys(length, width, dtype=torch.float32):
    return torch.randn(2, 2, HEADS, length, width, generator=torch.manual_seed(1)).to(dtype)


@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_rope_is_the_rotary_code_of_transformers(base):
    length, width = 300, 64
    q, k = queries_and_keys(length, width)
    angles = {"rope_type": "default", "rope_theta": base}
    config = LlamaConfig(
        hidden_size=HEADS * width, num_attention_heads=HEADS, rope_parameters=angles
    )
    places = torch.arange(length)[None]
    theirs = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(q, places))
    ours = rotated(q, k, width=HEADS * width, max_sequence_length=length, rotary_base=base)
    # Their angles are fp32: 300 x 2^-24
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


class WithoutDoubles(TorchDispatchMode):
    """Make the device "meta" one without fp64, as Apple's."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **options or {})
        if result.device.type == "meta" and result.dtype == torch.float64:
            raise TypeError("the device has no float64")
        return result


def test_angles_are_had_on_a_device_without_fp64():
    with WithoutDoubles():
        cosine, sine = encoding_for("rope").rotation(LENGTH, "meta")
    for angles in (cosine, sine):
        assert (angles.device.type, angles.dtype) == ("meta", torch.float32)
        assert angles.shape == (LENGTH, HEAD_WIDTH // 2)


def test_a_rotation_far_from_the_start_is_as_exact_as_a_near_one():
    encoding = encoding_for("rope", max_sequence_length=2**18)
    last = encoding.terms(2**18, device="cpu").rotation.cosine_SC[-1]
    expected = [math.cos((2**18 - 1) * 10_000 ** (-2 * c / HEAD_WIDTH)) for c in range(2)]
    torch.testing.assert_close(last, torch.tensor(expected), rtol=0, atol=1e-6)


@pytest.mark.parametrize("autocast", [False, True])
def test_bf16_queries_are_rotated_in_fp32_and_cast_back(autocast):
    q, k = queries_and_keys(LENGTH, HEAD_WIDTH, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = rotated(q, k)
    expected = rotated(q.float(), k.float())
    for actual, exact in zip(found, expected, strict=True):
        assert actual.dtype is torch.bfloat16 and torch.equal(actual, exact.bfloat16())


def test_rope_refuses_heads_of_odd_width():
    with pytest.raises(ConfigError, match="model.positions='rope': model.width=15 and .* width 5"):
        build_position_encoding(settings("rope", width=15))


def test_an_unknown_encoding_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="model.positions='tupe_r'.*did you mean tupe-r"):
        build_position_encoding(settings("tupe_r"))
