"""What DeepSpeed reads from every configuration that is shipped, with every recipe."""

import pytest
from deepspeed.runtime.config import DeepSpeedConfig

from pretrain.config.ds_config import DS_CONFIGS, fill_ds_config, read_ds_config
from pretrain.config.recipe import load_settings
from pretrain.engine.zero_choice import with_fitted_buckets

# Rows of a step and largest gradient norm, as the papers give them; a quarter of the parameters.
RECIPES = {"tupe_base": (256, 1.0, 112_423_040 // 4), "pld_base": (4096, 1.0, 109_518_912 // 4)}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", sorted(file.stem for file in DS_CONFIGS.glob("*.json")))
def test_deepspeed_reads_what_the_name_says(name, recipe):
    settings = load_settings(recipe, [])
    filled = fill_ds_config(read_ds_config(name, "cuda"), settings, world_size=1)
    found = DeepSpeedConfig(with_fitted_buckets(filled, settings))
    stage, _, precision = name.removeprefix("zero").partition("_")
    assert found.zero_optimization_stage == int(stage)
    assert found.float16_config.enabled == (precision == "fp16")
    assert found.bfloat16_config.enabled == (precision == "bf16")
    assert found.torch_autocast_enabled == (precision == "bf16_autocast")
    rows, largest_norm, bucket = RECIPES[recipe]
    assert int(stage) == 0 or found.zero_config.reduce_bucket_size == bucket
    assert not found.timers_config.enabled
    assert found.train_batch_size == rows and found.gradient_clipping == largest_norm
    micro = found.train_micro_batch_size_per_gpu
    assert micro * found.gradient_accumulation_steps == rows
    assert found.steps_per_print >= 10**9
    if precision == "fp16":
        # Dynamic: from 2^16, halved at the second overflow in a row, doubled after 1000 steps.
        fp16 = found.float16_config
        assert fp16.loss_scale == 0
        assert fp16.initial_scale_power == 16
        assert fp16.loss_scale_window == 1000
        assert fp16.hysteresis == 2
        assert fp16.min_loss_scale == 1
