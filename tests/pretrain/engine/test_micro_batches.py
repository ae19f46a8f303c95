import gc
import weakref

import pytest
import torch

from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.distributed.hardware import HALF, Gpu
from pretrain.distributed.ranks import Ranks
from pretrain.engine import micro_batches
from pretrain.engine.footprint import checkpoint_bytes, needed_bytes, rank_bytes
from pretrain.engine.micro_batches import (
    SHARE,
    MicroBatches,
    RandomBatches,
    choose_micro_batches,
    pass_fits,
)
from pretrain.engine.zero_choice import with_fitted_buckets
from pretrain.model.execution_plan import PLAIN, ExecutionPlan
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel

WORDS = ("--batch.global_sequences", "24", "--batch.micro_sequences", "auto")
ALONE = Ranks(0, 1, "cpu")


def case(*words, name="zero0_fp32"):
    settings = load_settings("tiny_cpu", [*WORDS, "--model.dropout", "0.1", *words])
    config = fill_ds_config(read_ds_config(name, "cpu"), settings, world_size=1)
    return settings, with_fitted_buckets(config, settings)


class LimitedModel(MaskedLanguageModel):
    """A model whose passes of too many rows run out of memory."""

    most_rows, tried = 0, ()

    def forward(self, ids_BS, *others):
        LimitedModel.tried += (len(ids_BS),)
        if len(ids_BS) > self.most_rows:
            torch.rand(1)  # what a real pass would have drawn
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(ids_BS, *others)


@pytest.fixture
def chosen(monkeypatch):
    """Return the choice of a CPU that tries passes, and checks that nothing of a trial remains."""
    monkeypatch.setattr(micro_batches, "TRIED", ("cpu",))

    def choose(most_rows, *words, name="zero0_fp32", **before):
        monkeypatch.setattr(LimitedModel, "tried", ())
        monkeypatch.setattr(LimitedModel, "most_rows", most_rows)
        settings, config = case(*words, name=name)
        torch.manual_seed(settings.seed)
        model = LimitedModel(settings.model)
        weights = {key: weight.clone() for key, weight in model.state_dict().items()}
        state = torch.get_rng_state()
        try:
            return choose_micro_batches(settings, config, ALONE, PLAIN, model=model, **before)
        finally:
            assert torch.equal(torch.get_rng_state(), state)
            assert all(parameter.grad is None for parameter in model.parameters())
            torch.testing.assert_close(dict(model.state_dict()), weights, rtol=0, atol=0)

    return choose


@pytest.mark.parametrize(
    ("name", "drop"),
    [("zero1_fp16", ()), ("zero0_bf16_autocast", ("--layer_drop.schedule", "progressive"))],
)
def test_a_rank_that_runs_out_of_memory_tries_the_next_divisor(chosen, name, drop):
    assert chosen(9, *drop, name=name) == MicroBatches(8, per_step=3)
    assert LimitedModel.tried == (24, 12, 8)


def test_a_pass_that_failed_holds_nothing_afterwards():
    """As a frame in a cycle with its error would, until Python collects it at some time."""
    settings, config = case()
    model, held = MaskedLanguageModel(settings.model), []

    def fail(module, inputs):
        error = torch.OutOfMemoryError("CUDA out of memory")
        error.frame, tensor = {"error": error}, torch.zeros(4)
        error.frame["tensor"] = tensor
        held.append(weakref.ref(tensor))
        raise error

    model.register_forward_pre_hook(fail)
    gc.disable()
    try:
        assert not pass_fits(1, model, settings, config, ALONE)
    finally:
        gc.enable()
    assert held[0]() is None


@pytest.mark.parametrize(
    ("name", "world_size", "numbers"),  # per parameter, in fp32
    [("zero0_fp32", 1, 2), ("zero0_fp32", 4, 2 + 1), ("zero3_fp32", 4, 0)],
)
def test_a_pass_leaves_room_for_a_margin_and_the_optimizer(monkeypatch, name, world_size, numbers):
    """Moments and the copy that is exchanged; a stage that divides weights takes less than both."""
    reserved, empty = [], torch.empty

    def noted(*size, **options):
        if options.get("dtype") is not torch.uint8:
            return empty(*size, **options)
        reserved.extend(size)
        return empty(1)

    monkeypatch.setattr(micro_batches, "free_bytes", lambda ranks: 10**9)
    monkeypatch.setattr(micro_batches.torch, "empty", noted)
    settings, config = case(name=name)
    model = MaskedLanguageModel(settings.model)
    assert pass_fits(1, model, settings, config, Ranks(0, world_size, "cpu"))
    parameters = sum(one.numel() for one in model.parameters())
    assert reserved == [int((1 - SHARE) * 10**9) + 4 * numbers * parameters]


def test_a_gpu_gets_no_more_tokens_than_it_can_use():
    settings, config = case("--batch.global_sequences", "32768")
    ranks = Ranks(0, 1, "cuda", Gpu(1e12, HALF, 2**40))
    found = choose_micro_batches(settings, config, ranks, PLAIN)
    assert found == MicroBatches(2048, per_step=16)  # 65,536 tokens of rows of 32


def test_a_row_that_does_not_fit_is_refused_with_what_to_do(chosen):
    with pytest.raises(ConfigError, match="a pass of 1 sequence.*does not fit.*recompute_blocks"):
        chosen(0, "--batch.global_sequences", "2")


def test_a_cpu_takes_its_share_without_a_trial_where_it_fits(monkeypatch):
    settings, config = case()
    model = LimitedModel(settings.model)  # a pass would fail
    run = (settings, config, ALONE, PLAIN)
    assert choose_micro_batches(*run, model=model).sequences == 24
    needed = needed_bytes(settings, config, 1, PLAIN, 3)
    room = int(needed / SHARE) + 1 + checkpoint_bytes(settings)  # a copy is held during a save
    monkeypatch.setattr(micro_batches, "free_memory_bytes", lambda: room)
    found = choose_micro_batches(*run, model=model)
    assert found == MicroBatches(3, per_step=8)


def test_a_number_that_is_given_or_of_before_a_resume_is_taken_without_a_trial(chosen):
    assert chosen(0, "--batch.micro_sequences", "3") == MicroBatches(3, per_step=8)
    assert chosen(24, before=6) == MicroBatches(6, per_step=4)
    assert LimitedModel.tried == ()
    other_ranks = choose_micro_batches(*case(), ALONE, PLAIN, before=7)
    assert other_ranks.sequences == 24


@pytest.mark.parametrize(
    ("attention", "words"),
    [
        ("eager", ("--model.attention_dropout", "0.1", "--data.sequence_length", "128")),
        ("sdpa", ("--model.positions", "bert-a")),
        ("sdpa", ("--objective", "replaced_token_detection")),
    ],
)
def test_the_estimate_is_within_a_third_of_what_autograd_keeps(attention, words):
    """Storages that a forward pass saves, weights apart, counted by autograd's hooks."""
    shape = ("--model.num_layers", "6", "--model.width", "128", "--model.num_heads", "4")
    settings, config = case(*shape, "--model.max_sequence_length", "128", *words)
    execution = ExecutionPlan(attention)
    model = build_objective(settings.model, settings.objective, settings.electra, execution)
    weights = {one.data_ptr() for one in model.parameters()}
    storages = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(*RandomBatches(settings, 8)[0])
    assert loss.isfinite()
    found = needed_bytes(settings, config, 1, execution, 8) - rank_bytes(settings, config, 1)
    assert found == pytest.approx(sum(storages.values()), rel=1 / 3)
