import json

import pytest
import torch
from deepspeed.runtime.config import DeepSpeedConfig

from pretrain.config.batch import micro_sequences
from pretrain.config.ds_config import DS_CONFIGS, compute_type, fill_ds_config, read_ds_config
from pretrain.config.ds_keys import HARMLESS, REFUSED
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.distributed.deepspeed_library import check_ds_config
from pretrain.engine.zero_choice import with_fitted_buckets

ALL = sorted(file.stem for file in DS_CONFIGS.glob("*.json"))


def settings(*words):
    return load_settings("tiny_cpu", words)


def filled(config, *words, world_size=1):
    return fill_ds_config(config, settings(*words), world_size=world_size)


def test_the_type_of_autocast_is_read_as_deepspeed_spells_it():
    def of(dtype, *, enabled=True):
        return compute_type({"torch_autocast": {"enabled": enabled, "dtype": dtype}})

    assert of("torch.float16") == of("half") == torch.float16
    assert of("bf16") == torch.bfloat16
    assert of("float16", enabled=False) == torch.float32
    with pytest.raises(ConfigError, match="torch_autocast.dtype='bfloat1' does not exist; did you"):
        of("bfloat1")
    with pytest.raises(ConfigError, match="torch_autocast.dtype='None' does not exist"):
        compute_type({"torch_autocast": {"enabled": True}})


def test_clipping_is_always_written_because_deepspeeds_default_clips():
    config = filled({}, "--optimizer.max_gradient_norm", "none")
    assert config["gradient_clipping"] == 0.0


def test_deepspeeds_timer_which_waits_for_the_device_is_off_unless_the_json_asks_for_it():
    assert filled({})["timers"] == {"throughput": {"enabled": False}}
    asked = {"throughput": {"enabled": True, "synchronized": False}}
    assert filled({"timers": asked})["timers"] == asked


def test_a_json_that_contradicts_the_recipe_is_refused():
    with pytest.raises(ConfigError, match="gradient_clipping=5.0, the recipe 1.0"):
        filled({"gradient_clipping": 5.0})
    with pytest.raises(ConfigError, match="fp16.enabled: auto is for .*; delete these lines"):
        filled({"fp16": {"enabled": "auto"}, "train_batch_size": "auto"})
    filled({"train_batch_size": 8})


@pytest.mark.parametrize("path", REFUSED)
def test_what_would_train_or_save_something_else_is_refused_with_the_reason(path):
    *blocks, name = path.split(".")
    for harmless in HARMLESS.get(path, (False,) if blocks else ()):
        check_ds_config(filled(nested(blocks, {name: harmless}) if blocks else {}))
    harmful = False if HARMLESS.get(path) == (True,) else 2
    with pytest.raises(ConfigError, match=f"{path}={harmful} is not supported: .*; remove it$"):
        filled(nested(blocks, {name: harmful}))


def nested(blocks, content):
    """Return an object in objects of these names."""
    return {blocks[0]: nested(blocks[1:], content)} if blocks else content


def test_gradients_are_not_exchanged_before_it_is_known_which_blocks_ran():
    drop = ("--layer_drop.schedule", "progressive")
    same = (*drop, "--layer_drop.draw_per", "step")
    for stage, words in ((1, ()), (2, drop), (3, drop), (1, same)):
        config = {"zero_optimization": {"stage": stage, "overlap_comm": True}}
        filled(config, *words, world_size=2)
    config = {"zero_optimization": {"stage": 1, "overlap_comm": True}}
    filled(config, *drop)
    for words in (drop, (*drop, "--layer_drop.draw_per", "2")):
        with pytest.raises(ConfigError, match="overlap_comm at stage 1 does not work with layer"):
            filled(config, *words, world_size=2)


def test_two_precisions_at_once_are_refused():
    autocast = {"enabled": True, "dtype": "torch.bfloat16"}
    config = {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}
    with pytest.raises(ConfigError, match="enables bf16 and torch_autocast"):
        filled({**config, "torch_autocast": autocast})


def test_a_batch_that_does_not_divide_by_the_ranks_is_refused_with_the_next_ones():
    with pytest.raises(ConfigError, match="global_sequences=8 does not divide by 3.*take 6 or 9"):
        micro_sequences(settings(), 3)
    with pytest.raises(ConfigError, match="micro_sequences=3 x 2 ranks = 6; take.*=auto$"):
        micro_sequences(settings("--batch.micro_sequences", "3"), 2)


def test_auto_is_at_most_a_ranks_share():
    auto = settings("--batch.micro_sequences", "auto", "--batch.global_sequences", "24")
    assert micro_sequences(auto, 2) == 12
    assert micro_sequences(settings("--batch.micro_sequences", "1"), 2) == 1


DRAWS = ("--layer_drop.draw_per", "4", "--layer_drop.schedule", "constant")


def test_each_draw_of_the_blocks_is_of_whole_micro_batches():
    words = (*DRAWS, "--batch.global_sequences", "24")
    auto = settings(*words, "--batch.micro_sequences", "auto")
    assert micro_sequences(auto, 2) == 3
    with pytest.raises(ConfigError, match="draw_per=4 does not divide the 6 sequences of a rank"):
        micro_sequences(auto, 4)
    with pytest.raises(ConfigError, match="micro_sequences=4 does not divide the 3 sequences"):
        micro_sequences(settings(*words, "--batch.micro_sequences", "4"), 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "mine.json is damaged: "),
        ("[]", "mine.json is damaged: not a JSON object"),
        ('{"fp16": true}', "mine.json: fp16=True: input should be a valid dictionary"),
        ('{"fp16": {"enabled": 1}}', "fp16.enabled=1: input should be a valid boolean"),
        ('{"zero_optimization": {"stage": "1"}}', "stage='1': input should be a valid integer"),
        ('{"zero_optimization": {"stage": true}}', "stage=True: input should be a valid integer"),
        ('{"zero_optimization": {"stage": 4}}', "stage=4: input should be less than or equal to 3"),
        ('{"zero_optimisation": {}}', "zero_optimisation; did you mean zero_optimization"),
        ('{"torch_autocast": {"enable": true}}', "did you mean torch_autocast.enabled"),
        ('{"timers": {"throughputs": {}}}', "did you mean timers.throughput"),
    ],
)
def test_what_deepspeed_would_ignore_is_refused_by_name(tmp_path, content, message):
    file = tmp_path / "mine.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_ds_config(str(file), "cpu")
    with pytest.raises(ConfigError, match="did you mean zero1_fp16"):
        read_ds_config("zero1_fp166", "cpu")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"fp16": {"enable": True}}, "JSON: DeepSpeedFP16Config.enable: Extra inputs are not"),
        ({"zero_optimization": {"stag": 1}}, "JSON: DeepSpeedZeroConfig.stag: Extra inputs are"),
        ({"fp16": {"loss_scale": "x"}}, "JSON: DeepSpeedFP16Config.*loss_scale"),
        ({"zero_optimization": {"mics_shard_size": 1}}, "refuses the JSON .*: MiCS"),
    ],
)
def test_a_complaint_of_deepspeed_names_the_block(block, message):
    with pytest.raises(ConfigError, match=message):
        check_ds_config({"train_micro_batch_size_per_gpu": 1, **block})


def test_what_transformers_would_fill_in_is_as_if_it_were_not_there(tmp_path):
    file = tmp_path / "theirs.json"
    automatic = {"reduce_bucket_size": "auto", "overlap_comm": "auto", "allgather_bucket_size": 9}
    file.write_text(json.dumps({"zero_optimization": {"stage": 1, **automatic}}))
    config = read_ds_config(str(file), "cpu")
    assert config["zero_optimization"] == {"stage": 1, "allgather_bucket_size": 9}
    fitted = with_fitted_buckets(config, settings())["zero_optimization"]["reduce_bucket_size"]
    assert 0 < fitted < 500_000_000


# Rows of a step and largest gradient norm, as the papers give them; a quarter of the parameters.
RECIPES = {"tupe_base": (256, 1.0, 112_423_040 // 4), "pld_base": (4096, 1.0, 109_518_912 // 4)}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", ALL)
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
