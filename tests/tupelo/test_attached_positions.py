"""BERT of transformers with positions of ours, against our encoder with the same weights."""

import pytest
import torch
from safetensors.torch import load_model
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
)

import tupelo
from pretrain.config.settings import ModelSettings
from pretrain.convert.stock_models import BERT, stock_names
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from tests.tupelo.test_layer_drop import refused

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.3,  # differences in the terms must show in the states
}
IDS = torch.randint(5, 64, (3, 12), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([12, 7, 9], dtype=torch.int32)
MASK = torch.arange(12) < LENGTHS[:, None]
ENCODINGS = {"tupe-r": {}, "tupe-a": {"position_projection_bias": True}, "bert-ad": {}, "rope": {}}


def build(kind="bert", auto=AutoModel, **more):
    torch.manual_seed(0)
    return auto.from_config(AutoConfig.for_model(kind, **{**SHAPE, **more}))


def ours(theirs, positions, settings):
    """Return our model with the weights of their BertForMaskedLM, and of its encoding."""
    shape = {"width": 32, "num_heads": 4, "num_layers": 2, "feedforward_width": 64}
    shape |= {"vocabulary_size": 64, "max_sequence_length": 16, "positions": positions}
    shape |= {"dropout": 0.0, "attention_dropout": 0.0, "norm": "post", **settings}
    model = MaskedLanguageModel(ModelSettings(**shape))
    stored = theirs.state_dict()
    weights = {
        name: torch.cat([stored[theirs] for theirs in names])
        for name, names in stock_names(BERT, 2).items()
        if not name.startswith("encoder.positions.")
    }
    types = stored["bert.embeddings.token_type_embeddings.weight"]
    weights["encoder.token_embeddings.weight"] = (
        weights["encoder.token_embeddings.weight"] + types[0]
    )
    for name, weight in theirs.bert.positions.state_dict().items():
        weights[f"encoder.positions.{name}"] = weight
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize("positions", ENCODINGS)
def test_states_and_gradients_are_those_of_our_encoder(positions):
    theirs = build(auto=AutoModelForMaskedLM)
    encoding = tupelo.attach_positions(theirs, positions, **ENCODINGS[positions])
    model = ours(theirs, positions, ENCODINGS[positions])
    found = theirs.base_model(input_ids=IDS, attention_mask=MASK.long())[0][MASK]
    expected = model.encoder(IDS, lengths_B=LENGTHS)[MASK]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    full = theirs.base_model(input_ids=IDS)[0]
    torch.testing.assert_close(full, model.encoder(IDS), rtol=1e-4, atol=1e-5)
    wanted = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    (found * wanted).sum().backward()
    (expected * wanted).sum().backward()
    for name, weight in encoding.named_parameters():
        same = model.encoder.positions.get_parameter(name)
        torch.testing.assert_close(weight.grad, same.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["roberta", "electra"])
def test_models_like_bert_have_them_too(kind):
    """A word that moves changes its own state by the encoding alone: nothing else knows places."""
    model = build(kind, embedding_size=32) if kind == "electra" else build(kind)
    tupelo.attach_positions(model, "tupe-r")
    turned = torch.cat([IDS[:, :1], IDS[:, 1:].flip(1)], dim=1)

    def of_cls(ids):
        return model(input_ids=ids)[0][:, 0]

    assert not torch.allclose(of_cls(IDS), of_cls(turned), atol=1e-3)
    for weight in model.positions.parameters():
        nn.init.zeros_(weight)
    torch.testing.assert_close(of_cls(IDS), of_cls(turned))
    assert not [name for name in model.state_dict() if "embeddings.position_embeddings" in name]


def test_a_file_of_save_pretrained_is_loaded_with_its_tied_weights(tmp_path):
    model = build(auto=AutoModelForMaskedLM)
    tupelo.attach_positions(model, "tupe-r")
    model.save_pretrained(tmp_path)
    again = BertForMaskedLM(BertConfig.from_pretrained(tmp_path))  # with other random weights
    with pytest.raises(RuntimeError, match="bert.positions"):
        load_model(again, tmp_path / "model.safetensors")
    tupelo.attach_positions(again, "tupe-r")
    load_model(again, tmp_path / "model.safetensors")
    assert torch.equal(again(input_ids=IDS).logits, model(input_ids=IDS).logits)
    assert again.get_output_embeddings().weight is again.get_input_embeddings().weight


def test_other_models_with_the_same_config_keep_their_attention():
    config = AutoConfig.for_model("bert", **SHAPE)
    model, other = BertForMaskedLM(config), BertModel(config)
    expected = other(input_ids=IDS)[0]
    tupelo.attach_positions(model, "tupe-r")
    assert torch.equal(other(input_ids=IDS)[0], expected)
    later = BertModel(config)
    later.load_state_dict(other.state_dict())
    assert torch.equal(later(input_ids=IDS)[0], expected)


def test_gradient_checkpointing_and_layer_drop_go_with_it():
    found = []
    for checkpointed in (False, True):
        model = build().train()
        tupelo.attach_positions(model, "tupe-r")
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        drop = tupelo.LayerDrop(model, schedule="constant", theta_bar=0.9)
        drop.begin_step(0)
        assert all(drop.branch_scales)
        model(input_ids=IDS)[0].square().sum().backward()
        found.append([weight.grad for weight in model.positions.parameters()])
    torch.testing.assert_close(*found)


def test_a_mistake_is_one_clear_line():
    for kind, more, positions, message in (
        ("deberta", {}, "tupe-r", "not to deberta"),
        ("bert", {"is_decoder": True}, "tupe-r", "this BertModel is a decoder"),
        ("bert", {}, "shaw", "positions='shaw' differ from layer to layer"),
        ("bert", {}, "bert-r", "positions='bert-r' are added to the words"),
    ):
        with refused(message):
            tupelo.attach_positions(build(kind, **more), positions)
    model = build()
    with refused("num_heads, width as in the model; leave it out"):
        tupelo.attach_positions(model, "tupe-r", width=64, num_heads=2)
    tupelo.attach_positions(model, "tupe-r")
    with refused("this BertModel has attached positions already"):
        tupelo.attach_positions(model, "tupe-a")
    model.set_attn_implementation("sdpa")
    with refused("the attention 'sdpa' knows no attached positions"):
        model(input_ids=IDS)
    model.set_attn_implementation("tupelo_positions")
    with refused("this model has no attached positions"):
        type(model)(model.config)(input_ids=IDS)
