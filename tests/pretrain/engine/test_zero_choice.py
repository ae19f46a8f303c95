"""Which ZeRO stage "auto" takes, what a rank then holds, and how large its buckets are."""

import json
from types import SimpleNamespace

import pytest
import torch

from pretrain.config.recipe import load_settings
from pretrain.distributed.ranks import Ranks
from pretrain.engine import zero_choice
from pretrain.engine.footprint import rank_bytes
from pretrain.engine.launch import checked_ds_config
from pretrain.engine.zero_choice import automatic_stage, device_bytes, with_fitted_buckets
from pretrain.train.checks import ds_config_of
from pretrain.train.request import RunRequest
from tests.pretrain.engine import training_case as case

GIB = 2**30
BASE = ("--model.num_layers", "12", "--model.width", "768", "--model.num_heads", "12")


def num_parameters(settings):
    return sum(parameter.numel() for parameter in case.build_model(settings).parameters())


def stage_config(stage, **zero):
    return {"zero_optimization": {"stage": stage, **zero}}


def ranks_of(count, device="cuda"):
    return Ranks(0, count, device)


@pytest.fixture
def on_gpus(monkeypatch):
    """GPUs that compute in bf16, with the memory that a test gives."""
    monkeypatch.setattr(zero_choice, "computes_in_bf16", lambda device: True)

    def have(*memory):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(memory))
        monkeypatch.setattr(
            torch.cuda,
            "get_device_properties",
            lambda gpu: SimpleNamespace(total_memory=memory[gpu]),
        )

    return have


def test_a_rank_holds_16_bytes_a_parameter_and_what_is_exchanged():
    settings = case.case_settings()
    number = num_parameters(settings)
    assert rank_bytes(settings, stage_config(0), 1) == 16 * number  # 4 + 4 + 8
    assert rank_bytes(settings, stage_config(0), 2) == 20 * number
    # fp32 weights and both moments are divided; the weights that compute and their gradients not
    divided = 6 * number
    found = rank_bytes(settings, stage_config(1, reduce_bucket_size=100), 2)
    assert found == 8 * number + divided + 4 * 100
    half = {**stage_config(2, reduce_bucket_size=100), "fp16": {"enabled": True}}
    assert rank_bytes(settings, half, 2) == 2 * number + number + divided + 2 * 100


def test_several_gpus_take_stage_0_where_the_model_fits_into_half_the_memory(on_gpus):
    settings = load_settings("tupe_r", BASE)
    needed = rank_bytes(settings, stage_config(0), 8)
    on_gpus(*[2 * needed] * 8)
    assert automatic_stage(settings, ranks_of(8)) == 0
    on_gpus(*[2 * needed - 2] * 8)
    assert automatic_stage(settings, ranks_of(8)) == 1


def test_the_smallest_gpu_that_gets_a_rank_decides(on_gpus):
    on_gpus(80 * GIB, 24 * GIB, 8 * GIB)
    assert device_bytes(ranks_of(2)) == 24 * GIB
    assert device_bytes(ranks_of(16)) == 8 * GIB  # on several machines like this one
    host = device_bytes(ranks_of(1, "cpu"))
    assert device_bytes(ranks_of(4, "cpu")) == host // 4 > 0


def test_one_rank_and_fp16_have_no_choice(on_gpus, monkeypatch):
    on_gpus(1, 1)
    settings = load_settings("tupe_r", ())
    assert automatic_stage(settings, ranks_of(2)) == 1
    assert automatic_stage(settings, ranks_of(1)) == 0
    monkeypatch.setattr(zero_choice, "computes_in_bf16", lambda device: False)
    on_gpus(80 * GIB, 80 * GIB)
    assert [automatic_stage(settings, ranks_of(count)) for count in (1, 2)] == [1, 1]


def test_ranks_on_a_cpu_take_it_too_and_a_resumed_run_keeps_its_stage(tmp_path):
    settings, ranks = case.case_settings(), ranks_of(2, "cpu")
    assert settings.engine.ds_config == "auto"
    new = checked_ds_config(settings, ranks)
    assert new["zero_optimization"] == {"stage": 0}
    (tmp_path / "ds_config.json").write_text(json.dumps(stage_config(1)))
    resumed = ds_config_of(RunRequest(settings, tmp_path, "resume"), ranks)
    assert resumed["zero_optimization"]["stage"] == 1


def test_buckets_are_a_quarter_of_the_model_but_hold_every_parameter():
    settings = load_settings("tupe_r", (*BASE, "--model.vocabulary_size", "30528"))
    embedding = 30528 * 768
    found = with_fitted_buckets(stage_config(1), settings)["zero_optimization"]
    number = num_parameters(settings)
    assert found == {"stage": 1, "reduce_bucket_size": -(-number // 4)}
    assert embedding < -(-number // 4) < 5e8 / 10  # DeepSpeed's own
    small = load_settings("tupe_r", ("--model.vocabulary_size", "30528"))
    found = with_fitted_buckets(stage_config(3), small)["zero_optimization"]
    assert found["reduce_bucket_size"] == 30528 * small.model.width  # more than a quarter
    own = stage_config(1, reduce_bucket_size=7)
    assert with_fitted_buckets(own, small) == own
    assert with_fitted_buckets(stage_config(0), small) == stage_config(0)
