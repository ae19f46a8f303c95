"""The head is the formula, padding is not seen, and the encoder is the pre-trained one."""

import itertools

import pytest
import torch

from finetune.training.targets import Classes, Values
from finetune.training.train import build_task_model
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.model.positions import POSITION_ENCODINGS
from tests.finetune.fine_tuning_case import protocol, tiny_pretrained


def build(pretrained, rules=None, **changes):
    options = {"target": Classes(3), "seed": 0, **changes}
    return build_task_model(pretrained, rules or protocol(), **options).eval()


@pytest.mark.parametrize(
    ("positions", "norm"), [*zip(sorted(POSITION_ENCODINGS), itertools.cycle(("pre", "post")))]
)
def test_a_row_alone_has_the_logits_that_it_has_in_a_padded_batch(positions, norm):
    model = build(tiny_pretrained(positions=positions, norm=norm))
    row = torch.tensor([[2, 11, 12, 13, 14, 3]])
    batch = torch.randint(4, 40, (4, 24), generator=torch.Generator().manual_seed(0))
    batch[2, :6] = row
    lengths = torch.tensor([24, 9, 6, 17], dtype=torch.int32)
    alone = model(row, torch.tensor([6], dtype=torch.int32))
    together = model(batch, lengths)
    # Sums over other numbers of keys in fp32.
    torch.testing.assert_close(together[2:3], alone, atol=1e-5, rtol=1e-5)
    batch[2, 6:] = 1
    torch.testing.assert_close(model(batch, lengths), together, atol=1e-6, rtol=0)


def test_the_head_computes_in_fp32_where_the_encoder_computes_in_bf16():
    model = build(tiny_pretrained(), target=Values(0.0, 1.0))
    ids = torch.randint(4, 40, (200, 16), generator=torch.Generator().manual_seed(0))
    lengths = torch.full((200,), 16, dtype=torch.int32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = model(ids, lengths)
        x = model.encoder(ids, lengths_B=lengths)[:, 0].float()
    with torch.no_grad():
        expected = model.classifier.output(torch.tanh(model.classifier.dense(x)))
    assert torch.equal(logits, expected)
    assert len(logits.unique()) == 200


def test_the_encoder_is_the_pre_trained_one_and_every_block_runs_in_training():
    pretrained = tiny_pretrained()
    whole = MaskedLanguageModel(pretrained.model)
    whole.load_state_dict(pretrained.weights)
    ids = torch.tensor([[2, 11, 12, 3]])
    encoder = build(pretrained).encoder
    assert torch.equal(encoder(ids), whole.eval().encoder(ids))
    ran = []
    for number, block in enumerate(encoder.blocks):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    for _ in range(20):
        encoder.train()(ids)
    assert ran == [0, 1] * 20


def test_new_weights_and_heads_are_a_function_of_the_seed():
    pretrained = tiny_pretrained()
    weights = [build(pretrained, seed=seed, takes_weights=False).state_dict() for seed in (0, 0, 1)]
    name = "encoder.token_embeddings.weight"
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert not torch.equal(weights[0][name], weights[2][name])
    assert not torch.equal(weights[0][name], pretrained.weights[name])
    heads = [build(pretrained, seed=seed).classifier.output.weight for seed in (0, 1)]
    assert not torch.equal(*heads)


def test_dropout_is_that_of_the_protocol():
    before = tiny_pretrained(dropout=0.5, attention_dropout=0.4)
    model = build(before, protocol(dropout=0.2, attention_dropout=0.3))
    assert {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)} == {0.2}
    assert {block.attention.dropout_probability for block in model.encoder.blocks} == {0.3}
