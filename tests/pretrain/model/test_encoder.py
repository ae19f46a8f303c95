"""Blocks, head and whole encoders against PyTorch's and Hugging Face's implementations."""

import math

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from data_prep.masking import IGNORED
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.model.blocks import Block
from pretrain.model.cost import parameters_by_group, training_cost
from pretrain.model.encoder import Encoder
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.model.position_encoding import PositionTerms
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.model.torch_attention import eager
from tests.pretrain.model.their_models import copy_layer, copy_network, their_config

NO_TERMS = PositionTerms()


def model_settings(*words):
    return load_settings("tiny_cpu", words).model


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_is_pytorchs_encoder_layer_on_the_same_weights(norm):
    settings = model_settings("--model.norm", norm, "--model.layer_norm_epsilon", "1e-5")
    torch.manual_seed(0)
    block = Block(settings, settings.head_width**-0.5)
    theirs = nn.TransformerEncoderLayer(
        settings.width,
        settings.num_heads,
        settings.feedforward_width,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=norm == "pre",
    )
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3)
    names = {
        **{"self_attn.in_proj_": "attention.query_key_value", "norm1.": "attention_norm"},
        **{"self_attn.out_proj.": "attention.output", "norm2.": "feedforward_norm"},
        **{"linear1.": "feedforward.inner", "linear2.": "feedforward.output"},
    }
    kinds = ("weight", "bias")
    theirs.load_state_dict(
        {to + one: block.get_parameter(f"{of}.{one}") for to, of in names.items() for one in kinds}
    )
    x = torch.randn(3, 9, settings.width)
    # fp32 sums over 128 products
    torch.testing.assert_close(block(x, NO_TERMS), theirs(x), rtol=1e-4, atol=1e-4)


def test_bert_a_with_post_norm_is_hugging_faces_bert_on_copied_weights():
    settings = model_settings("--model.positions", "bert-a", "--model.norm", "post")
    torch.manual_seed(0)
    model = MaskedLanguageModel(settings).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    bert = BertForMaskedLM(their_config(BertConfig, settings)).eval()
    copy_network(model.encoder, model.encoder, bert.bert)
    copy_layer(model.head.dense, bert.cls.predictions.transform.dense)
    copy_layer(model.head.norm, bert.cls.predictions.transform.LayerNorm)
    bert.cls.predictions.bias.data.copy_(model.head.output_bias)
    ids = torch.randint(5, settings.vocabulary_size, (3, 32))
    positions = torch.tensor([1, 7, 40, 95])
    theirs = bert(input_ids=ids).logits.flatten(0, 1)[positions]
    # fp32 through two blocks and a head
    torch.testing.assert_close(model.logits(ids, positions), theirs, rtol=1e-4, atol=1e-4)
    labels = torch.full((3, 32), IGNORED)
    labels.view(-1)[positions] = ids.view(-1)[positions]
    torch.testing.assert_close(
        model(ids, positions, ids.view(-1)[positions]),
        bert(input_ids=ids, labels=labels).loss,
        rtol=1e-5,
        atol=1e-5,
    )


def test_a_batch_in_which_nothing_is_predicted_has_no_loss():
    model = MaskedLanguageModel(model_settings())
    ids, positions = torch.randint(5, 1000, (2, 32)), torch.tensor([3, 40])
    loss = model(ids, positions, torch.full((2,), IGNORED))
    loss.backward()
    assert loss == 0
    assert all(not parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("dropout", ["0", "0.5"])
def test_recomputing_blocks_changes_no_gradient(dropout):
    settings = model_settings("--model.dropout", dropout, "--model.attention_dropout", dropout)
    ids, places = torch.randint(5, 1000, (2, 32)), torch.tensor([3, 40])
    gradients = []
    for recompute in (False, True):
        torch.manual_seed(0)
        model = MaskedLanguageModel(settings, ExecutionPlan(recomputes_blocks=recompute))
        model(ids, places, ids.view(-1)[places], [1.25, 1.5]).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(kept, again) for kept, again in zip(*gradients, strict=True))


def test_each_dropout_acts_where_its_setting_says_and_in_training_only():
    words = ("--model.dropout", "0.25", "--model.attention_dropout", "0.5")
    encoder, given = Encoder(model_settings(*words)), []
    ids_BS = torch.randint(1000, (64, 32))
    zeros_BSD = encoder.embed(ids_BS) == 0
    assert zeros_BSD.float().mean().item() == pytest.approx(0.25, abs=0.01)
    for block in encoder.blocks:
        block.attention.attend = lambda inputs: given.append(inputs.dropout) or eager(inputs)
    encoder(ids_BS), encoder.eval()(ids_BS)
    assert given == [0.5, 0.5, 0, 0] and not (encoder.embed(ids_BS) == 0).any()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_skipped_block_is_the_identity_and_gets_no_gradient(norm):
    torch.manual_seed(0)
    model = MaskedLanguageModel(model_settings("--model.norm", norm))
    ids, positions = torch.randint(5, 1000, (2, 32)), torch.tensor([3, 40])
    model(ids, positions, ids.view(-1)[positions], [0.0, 1.0]).backward()
    first, second = model.encoder.blocks
    assert all(parameter.grad is None for parameter in first.parameters())
    assert all(parameter.grad is not None for parameter in second.parameters())
    del model.encoder.blocks[0]
    shallow = model.logits(ids, positions)
    model.encoder.blocks.insert(0, first)
    assert torch.equal(model.logits(ids, positions, [0.0, 1.0]), shallow)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_both_branches_of_a_kept_block_are_scaled(norm):
    settings = model_settings("--model.norm", norm)
    block = Block(settings, 0.25)
    x = torch.randn(2, 5, settings.width)
    if norm == "pre":
        attended = x + 1.6 * block.attention(block.attention_norm(x), NO_TERMS)
        expected = attended + 1.6 * block.feedforward(block.feedforward_norm(attended))
    else:
        attended = block.attention_norm(x + 1.6 * block.attention(x, NO_TERMS))
        expected = block.feedforward_norm(attended + 1.6 * block.feedforward(attended))
    torch.testing.assert_close(
        block(x, NO_TERMS, torch.tensor(1.6)), expected, rtol=1e-6, atol=1e-6
    )
    block.dropout.p = 1.0
    nothing = x if norm == "pre" else block.feedforward_norm(block.attention_norm(x))
    assert torch.equal(block(x, NO_TERMS), nothing)
    assert not torch.equal(block.eval()(x, NO_TERMS), nothing)


def test_tupe_adds_1_18_million_parameters_to_bert_base():
    """TUPE Sec. 3.3: 2 x 768 x 768, plus one LayerNorm and the vectors of theta_1 and theta_2."""
    bert, tupe_a, tupe_r = (
        parameters_by_group(load_settings(recipe).model)["total"]
        for recipe in ("bert_base", "tupe_a_base", "tupe_base")
    )
    assert tupe_a - bert == 2 * 768 * 768 + 2 * 768 + 2 * 768
    assert tupe_r - tupe_a == 32 * 12


def test_a_scalar_parameter_is_refused_by_name(monkeypatch):
    class Scaled(POSITION_ENCODINGS["nope"]):
        def __init__(self, settings):
            super().__init__(settings)
            self.slope = torch.nn.Parameter(torch.ones(()))

    monkeypatch.setitem(POSITION_ENCODINGS, "scaled", Scaled)
    with pytest.raises(ConfigError, match=r"encoder\.positions\.slope has no dim.*shape \(1,\)"):
        parameters_by_group(model_settings("--model.positions", "scaled"))


def test_groups_of_parameters_add_up_to_the_model():
    for positions in POSITION_ENCODINGS:
        settings = model_settings("--model.positions", positions)
        groups = parameters_by_group(settings)
        model = MaskedLanguageModel(settings)
        assert groups.pop("total") == sum(p.numel() for p in model.parameters())
        assert sum(groups.values()) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("scales", [[1.0, 1.0], [1.0, 0.0]])
@pytest.mark.parametrize("positions", POSITION_ENCODINGS)
def test_counted_flops_are_those_of_pytorchs_flop_counter(positions, scales):
    from torch.utils.flop_counter import FlopCounterMode

    settings = model_settings("--model.positions", positions)
    model, rows, predictions = MaskedLanguageModel(settings), 3, 11
    ids = torch.randint(5, 1000, (rows, 32))
    chosen = torch.arange(predictions)
    with FlopCounterMode(display=False) as counter:
        model(ids, chosen, ids.view(-1)[chosen], scales)
    cost = training_cost(settings, 32)
    ours = cost.of_pass(rows=rows, predictions=predictions, kept=scales, ranks=1) / 3
    assert ours == counter.get_total_flops()


@pytest.mark.parametrize("scales", [None, [1.5, 0.0, 1.2], [1.1, 1.5, 0.0]])
@pytest.mark.parametrize("positions", ["tupe-r", "rope", "shaw"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("recompute", [False, True])
def test_states_of_some_positions_are_those_of_all(norm, positions, scales, recompute):
    """Which the last block leaves out: neither results nor gradients know."""
    words = ("--model.num_layers", "3", "--model.norm", norm, "--model.positions", positions)
    torch.manual_seed(0)
    execution = ExecutionPlan(recomputes_blocks=recompute)
    encoder = Encoder(model_settings(*words), execution).double()
    ids_BS = torch.randint(5, 1000, (3, 32))
    lengths_B = torch.tensor([32, 7, 20], dtype=torch.int32)
    chosen_M = torch.tensor([40, 3, 33, 3, 95, 0])  # in any order, some twice
    upstream_MD = torch.randn(6, encoder.token_embeddings.embedding_dim).double()
    whole = encoder(ids_BS, scales, lengths_B).flatten(0, 1)[chosen_M]
    found = encoder(ids_BS, scales, lengths_B, positions_M=chosen_M)
    gradients = [
        torch.autograd.grad(
            (output * upstream_MD).sum(),
            list(encoder.parameters()),
            allow_unused=True,
            materialize_grads=True,
        )
        for output in (whole, found)
    ]
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(gradients[1], gradients[0])


def test_initial_values_are_berts():
    torch.manual_seed(0)
    model = MaskedLanguageModel(
        model_settings("--model.width", "128", "--model.positions", "tupe-r")
    )
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            assert torch.all(parameter == 1), name
        elif name.endswith("bias"):
            assert torch.all(parameter == 0), name
        else:
            assert 0.015 < parameter.std() < 0.025, name
            assert abs(parameter.mean()) < 0.01, name


def test_depth_scaled_branches_start_smaller_by_the_root_of_their_number():
    """All else starts as before, number by number: only the four outputs of two blocks differ."""
    words = ("--model.width", "256", "--model.num_layers", "2", "--model.positions", "tupe-r")
    models = {}
    for name in ("bert", "depth_scaled"):
        torch.manual_seed(0)
        choice = ("--model.branch_initialisation", name)
        models[name] = dict(MaskedLanguageModel(model_settings(*words, *choice)).named_parameters())
    scaled = [
        name
        for name, weight in models["depth_scaled"].items()
        if not torch.equal(weight, models["bert"][name])
    ]
    parts = ("attention.output.weight", "feedforward.output.weight")
    assert scaled == [f"encoder.blocks.{block}.{part}" for block in (0, 1) for part in parts]
    for name in scaled:  # 0.02 / sqrt(2 L), from 65,536 draws at least
        weight = models["depth_scaled"][name]
        assert weight.std().item() == pytest.approx(0.02 / math.sqrt(4), rel=0.015)
        assert abs(weight.mean().item()) < 4 * 0.01 / math.sqrt(weight.numel())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_branches_are_scaled_by_the_number_that_was_drawn_whatever_the_type(dtype):
    encoder = MaskedLanguageModel(model_settings()).encoder.to(dtype)
    given = []
    for block in encoder.blocks:
        block.register_forward_pre_hook(lambda _, inputs: given.append(float(inputs[2])))
    ids_BS = torch.zeros(1, 4, dtype=torch.int64)
    output_BSD = encoder(ids_BS, [12 / 11, 24 / 13])
    # fp32 holds seven digits, bf16 two
    assert given == pytest.approx([12 / 11, 24 / 13], rel=1e-7)
    assert output_BSD.dtype == dtype
    branch_D = torch.rand(4096, dtype=dtype)
    sum_D = encoder.blocks[0]._sum(torch.zeros_like(branch_D), branch_D, 12 / 11)
    wide = torch.promote_types(dtype, torch.float32)
    assert torch.equal(sum_D, (branch_D.to(wide) * (12 / 11)).to(dtype))


def test_no_norm_sums_the_gradients_of_its_weights_in_bf16():
    """That of the head reads bf16 under autocast."""
    torch.manual_seed(0)
    model = MaskedLanguageModel(model_settings("--model.num_layers", "3"))
    norms = {name: module for name, module in model.named_modules() if name.endswith("norm")}
    norms.pop("encoder.positions.projected.norm")  # of fp32 weights
    assert len(norms) == 3 * 2 + 3
    for name, norm in norms.items():
        input_MD, upstream_MD = torch.randn(2, 2048, 32).bfloat16()
        with torch.autocast("cpu", torch.bfloat16):
            norm(input_MD).backward(upstream_MD)
        expected_D = upstream_MD.double().sum(0)
        # fp32 sums of 2048 numbers
        torch.testing.assert_close(
            norm.bias.grad.double(), expected_D, rtol=1e-4, atol=1e-4, msg=name
        )
