"""Rates by layer are those of a table worked out by hand."""

import pytest

from finetune.training.layer_rates import rate_factors, split_by_rate
from finetune.training.targets import Classes
from finetune.training.train import build_task_model
from pretrain.engine.optimizers import TorchAdamW
from tests.finetune.fine_tuning_case import protocol, tiny_pretrained

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


def task_model(**changes):
    pretrained = tiny_pretrained(num_layers=3, **changes)
    return build_task_model(pretrained, protocol(), target=Classes(2), seed=0)


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
    before = TorchAdamW().build(model, protocol().optimizer()).param_groups
    after = split_by_rate(before, rate_factors(model, 1.0))
    assert len(before) == 2 == len(after)
    for old, new in zip(before, after, strict=True):
        assert all(a is b for a, b in zip(old.pop("params"), new.pop("params"), strict=True))
        assert new == old and new["learning_rate_factor"] == 1.0
