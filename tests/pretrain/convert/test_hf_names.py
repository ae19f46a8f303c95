"""The names of Hugging Face's BERT: complete, and the same table both ways."""

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from pretrain.config.recipe import load_settings
from pretrain.convert.hf_names import TOKEN_TYPES, bert_names, from_bert, to_bert
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel


@pytest.fixture
def model():
    words = ("--model.positions", "bert-a", "--model.norm", "post", "--model.num_layers", "3")
    torch.manual_seed(0)
    return MaskedLanguageModel(load_settings("tiny_cpu", words).model)


def test_every_weight_has_a_name_in_bert_and_comes_back(model):
    weights = model.state_dict()
    assert bert_names(3).keys() == weights.keys()
    back = from_bert(to_bert(weights, 3), 3)
    assert all(torch.equal(back[name], weights[name]) for name in weights)


def test_the_names_are_those_of_hugging_faces_model(model):
    config = BertConfig(
        vocab_size=1024,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=32,
    )
    theirs = dict(BertForMaskedLM(config).named_parameters())
    shapes = {name: tensor.shape for name, tensor in to_bert(model.state_dict(), 3).items()}
    shapes[TOKEN_TYPES] = torch.Size([2, 32])
    assert shapes == {name: parameter.shape for name, parameter in theirs.items()}
