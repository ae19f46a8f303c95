"""The names of transformers' BERT and ELECTRA: complete, and the same table both ways."""

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, ElectraConfig, ElectraForPreTraining

from pretrain.config.recipe import load_settings
from pretrain.convert.hf_names import BERT, ELECTRA, from_stock, stock_names, to_stock
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.model.objectives.replaced_tokens import Discriminator

CASES = [
    (BERT, MaskedLanguageModel, BertForMaskedLM, BertConfig, {}),
    (ELECTRA, Discriminator, ElectraForPreTraining, ElectraConfig, {"embedding_size": 32}),
]


WORDS = ("--model.positions", "bert-a", "--model.norm", "post", "--model.num_layers", "3")
SETTINGS = load_settings("tiny_cpu", WORDS).model


def of(kind):
    torch.manual_seed(0)
    return kind(SETTINGS)


@pytest.mark.parametrize(("stock", "ours"), [case[:2] for case in CASES])
def test_every_weight_has_a_name_in_transformers_and_comes_back(stock, ours):
    weights = of(ours).state_dict()
    assert stock_names(stock, 3).keys() == weights.keys()
    back = from_stock(to_stock(weights, stock, 3), stock, 3, Path("here"))
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)


@pytest.mark.parametrize(("stock", "ours", "theirs", "config", "more"), CASES)
def test_the_names_are_those_of_transformers_model(stock, ours, theirs, config, more):
    shape = config(
        vocab_size=1024,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=32,
        **more,
    )
    parameters = dict(theirs(shape).named_parameters())
    renamed = to_stock(of(ours).state_dict(), stock, 3)
    shapes = {name: tensor.shape for name, tensor in renamed.items()}
    assert shapes == {name: parameter.shape for name, parameter in parameters.items()}
