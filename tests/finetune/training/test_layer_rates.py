"""Rates by layer are those of a table worked out by hand, and a step is torch's with that table."""

import pytest
import torch
import torch.nn.functional as F

from finetune.training.layer_rates import rate_factors, split_by_rate
from finetune.training.targets import Classes
from finetune.training.train import FineTuning, build_task_model
from pretrain.engine.optimizers import build_optimizer
from tests.finetune.fine_tuning_case import numbers, protocol, tiny_pretrained, tiny_task

# Of an encoder of three blocks with decay 0.5: google-research/electra, optimization.py, has
# rate x decay^(n_layers + 2 - depth) with depth 0 for embeddings, i + 1 for layer_i from 0, and
# n_layers + 2 for the task. All of these numbers are exact in binary.
HEAD, LAST_NORM, BLOCKS, EMBEDDINGS = 1.0, 0.5, (1 / 16, 1 / 8, 1 / 4), 1 / 32

OF_A_BLOCK = [
    f"{part}.{kind}"
    for part in (
        *("attention_norm", "attention.query_key_value", "attention.output"),
        *("feedforward_norm", "feedforward.inner", "feedforward.output"),
    )
    for kind in ("weight", "bias")
]
POSITIONS = {
    "bert-a": ["position_embeddings.weight"],
    "bert-r": ["position_embeddings.weight", "relative.bucket_embeddings.weight"],
    "tupe-r": [
        "projected.position_embeddings.weight",
        *("projected.norm.weight", "projected.norm.bias"),
        *("projected.query.weight", "projected.key.weight"),
        "relative.bucket_embeddings.weight",
    ],
}


def expected_table(positions, norm):
    layers = ("dense.weight", "dense.bias", "output.weight", "output.bias")
    table = {f"classifier.{name}": HEAD for name in layers}
    if norm == "pre":
        table |= dict.fromkeys(["encoder.final_norm.weight", "encoder.final_norm.bias"], LAST_NORM)
    for number, factor in enumerate(BLOCKS):
        table |= {f"encoder.blocks.{number}.{name}": factor for name in OF_A_BLOCK}
    lowest = ["token_embeddings.weight", "embedding_norm.weight", "embedding_norm.bias"]
    lowest += [f"positions.{name}" for name in POSITIONS[positions]]
    return table | {f"encoder.{name}": EMBEDDINGS for name in lowest}


def task_model(rules=None, **changes):
    return build_task_model(
        tiny_pretrained(num_layers=3, **changes),
        rules or protocol(),
        target=Classes(2),
        seed=0,
        takes_weights=True,
    )


@pytest.mark.parametrize(
    ("positions", "norm"), [("bert-a", "post"), ("bert-r", "pre"), ("tupe-r", "pre")]
)
def test_the_factor_of_every_weight_is_that_of_its_depth(positions, norm):
    model = task_model(positions=positions, norm=norm)
    factors = rate_factors(model, 0.5)
    found = {name: factors[parameter] for name, parameter in model.named_parameters()}
    assert found == expected_table(positions, norm)


def test_without_decay_the_optimizer_has_the_groups_and_the_order_that_it_had():
    model = task_model()
    before = build_optimizer(model, protocol().optimizer(), "cpu").param_groups
    after = split_by_rate(before, rate_factors(model, 1.0))
    assert len(before) == 2 == len(after)
    for old, new in zip(before, after, strict=True):
        assert all(a is b for a, b in zip(old.pop("params"), new.pop("params"), strict=True))
        assert new == old and new["learning_rate_factor"] == 1.0


def test_two_steps_are_those_of_torchs_adamw_with_a_rate_per_weight():
    still = {"dropout": 0.0, "attention_dropout": 0.0, "max_gradient_norm": None}
    rules = protocol(**still, weight_decay=0.5, layer_decay=0.5)
    data, own, plain = tiny_task(), task_model(rules), task_model(rules)
    run = FineTuning(own, data, rules, learning_rate=0.01, seed=0, device=torch.device("cpu"))
    table = expected_table("tupe-r", "pre")
    groups = [
        {"params": [p], "factor": table[name], "weight_decay": 0.5 if p.ndim > 1 else 0.0}
        for name, p in plain.named_parameters()
    ]
    optimizer = torch.optim.AdamW(groups, betas=rules.betas, eps=rules.epsilon)
    batch, labels = data.train.rows.batch(numbers(0, 1, 2, 3)), data.train.labels[:4]
    for place in range(2):
        run.train_step(batch, labels, epoch=0, place=place)
        optimizer.zero_grad()
        F.cross_entropy(plain(*batch), torch.tensor(labels)).backward()
        for group in optimizer.param_groups:
            group["lr"] = run.learning_rate(0, place) * group["factor"]
        optimizer.step()
    for (name, found), expected in zip(own.named_parameters(), plain.parameters(), strict=True):
        # The fused kernel rounds otherwise than the loop over operations.
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5, msg=name)
