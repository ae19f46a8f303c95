"""Recipes, protocols, run.json as a recipe, and DeepSpeed's JSON."""

import pytest

from pretrain.config.ds_config import DS_CONFIGS, compute_type, fill_ds_config, read_ds_config
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.recipe_files import recipe_files
from pretrain.config.settings import RunSettings, as_json
from pretrain.distributed.deepspeed_library import check_ds_config
from pretrain.train.dry_run import describe_run
from tests.hostile.mutations import mutated_json, mutated_toml
from tests.hostile.property import check_file

# A message names the file, or the setting.
SETTINGS = ("setting", *RunSettings.model_fields)
DS_JSON = (
    b'{"train_batch_size": "auto", "fp16": {"enabled": false, "loss_scale": 0}, '
    b'"bf16": {"enabled": true}, "torch_autocast": {"enabled": false, "dtype": "bfloat16"}, '
    b'"zero_optimization": {"stage": 1, "overlap_comm": true, "reduce_bucket_size": 1000, '
    b'"offload_optimizer": {"device": "none"}}, "gradient_clipping": "auto", '
    b'"wall_clock_breakdown": false}'
)


def test_any_recipe_is_a_run_or_refused(tmp_path):
    parents = {name: file.read_text() for name, file in recipe_files().items()}
    for name, text in parents.items():
        (tmp_path / f"{name}.toml").write_text(text)
    file = tmp_path / "mine.toml"
    for name in ("tupe_r_pld", "cpu"):
        file.write_text(parents[name])
        check_file(
            file,
            lambda content: mutated_toml(content.decode()),
            lambda: as_json(load_settings(file)),
            ConfigError,
            naming=[str(tmp_path), *SETTINGS],
        )


def test_any_run_json_is_a_recipe_or_refused(tmp_path):
    file = tmp_path / "run.json"
    file.write_text(as_json(load_settings("tiny_cpu")))

    def read_again(settings):
        file.write_text(as_json(settings))
        assert load_settings(tmp_path) == settings

    check_file(
        file,
        mutated_json,
        lambda: load_settings(tmp_path),
        ConfigError,
        naming=[str(tmp_path), *SETTINGS],
        then=read_again,
    )


@pytest.mark.parametrize("content", [DS_JSON, (DS_CONFIGS / "zero2_bf16.json").read_bytes()])
def test_any_deepspeed_json_runs_or_is_refused(tmp_path, content):
    settings = load_settings("tiny_cpu")
    file = tmp_path / "ds.json"

    def read():
        config = read_ds_config(str(file), "cpu")
        filled = fill_ds_config(config, settings, world_size=1)
        compute_type(filled)
        check_ds_config(filled)
        return describe_run(settings, filled, 1, settings.steps)

    file.write_bytes(content)
    naming = [str(file), "JSON", "torch_autocast", "zero_optimization", "half precision"]
    check_file(file, mutated_json, read, ConfigError, naming=naming)


def test_a_module_that_deepspeed_would_import_is_refused(tmp_path):
    file = tmp_path / "ds.json"
    for modules in ('["this.Zen"]', '"os.system"', '[{"torch.nn.": 1}]'):
        file.write_text(
            '{"torch_autocast": {"enabled": true, "dtype": "bfloat16", '
            f'"lower_precision_safe_modules": {modules}}}}}'
        )
        with pytest.raises(ConfigError, match="lower_precision_safe_modules"):
            fill_ds_config(
                read_ds_config(str(file), "cpu"), load_settings("tiny_cpu"), world_size=1
            )


@pytest.mark.parametrize("parent", ["7", '["a"]', "{a = 1}", '"' + 300 * "x" + '"'])
def test_a_parent_that_is_no_name_is_refused(tmp_path, parent):
    (tmp_path / "mine.toml").write_text(f"extends = {parent}\n")
    with pytest.raises(ConfigError, match="but there is no"):
        load_settings(tmp_path / "mine.toml")


@pytest.mark.parametrize("name", ["../../home", "a/../../b", "two\\nlines", "x" * 300, "😀" * 120])
def test_a_run_cannot_be_called_after_another_folder(tmp_path, name):
    with pytest.raises(ConfigError, match="name=.*does not lead to another folder"):
        load_settings("tiny_cpu", ["--name", name.replace("\\n", "\n")])
