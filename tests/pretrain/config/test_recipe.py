import json

import pytest

from data_prep.files.errors import UserError
from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings, settings_with
from pretrain.config.recipe_files import RECIPES, recipe_files, sweep_files
from pretrain.config.settings import RunSettings, as_json, flat, stored_settings
from pretrain.model.cost import parameters_by_group
from pretrain.schedules.layer_drop import check_layer_drop
from pretrain.schedules.learning_rate import learning_rate_at

ALL_RECIPES = recipe_files()


@pytest.mark.parametrize("recipe", ALL_RECIPES)
def test_every_recipe_describes_a_run_that_can_be_built(recipe):
    if recipe == "adapt":  # it begins with a model
        with pytest.raises(ConfigError, match="adapt needs --model.folder or --initial_weights"):
            load_settings(recipe)
    words = ("--initial_weights", "encoder") if recipe == "adapt" else ()
    settings = load_settings(recipe, words)
    assert settings.name == recipe
    groups = parameters_by_group(settings.model, settings.objective, settings.electra)
    assert groups["total"] > 0
    assert learning_rate_at(0, settings.learning_rate, settings.steps) > 0
    check_layer_drop(settings.layer_drop, settings.model.num_layers)
    config = read_ds_config(settings.engine.ds_config, "cpu")
    fill_ds_config(config, settings, world_size=1)


def test_every_file_in_the_folder_of_recipes_is_a_recipe_or_a_sweep():
    listed = [*ALL_RECIPES.values(), *sweep_files().values()]
    assert sorted(RECIPES.rglob("*.toml")) == sorted(listed)


def test_the_command_line_wins_over_the_recipe_and_the_recipe_over_its_parent(tmp_path):
    (tmp_path / "parent.toml").write_text("steps = 5\n[model]\nnum_layers = 3\nwidth = 24\n")
    (tmp_path / "child.toml").write_text(
        'extends = "parent"\nsteps = 6\n[model]\nnum_heads = 2\nwidth = 48\n'
    )
    settings = load_settings(tmp_path / "child.toml", ["--model.width", "96", "--seed", "3"])
    assert (settings.name, settings.steps, settings.seed) == ("child", 6, 3)
    (tmp_path / "short.toml").write_text('extends = "mini_hour"\nsteps = 30\n')
    for given in (("mini_hour", ["--steps", "30"]), (tmp_path / "short.toml", [])):
        assert load_settings(*given).hours is None  # not both
    assert (settings.model.num_layers, settings.model.num_heads) == (3, 2)
    assert settings.model.width == 96
    assert settings.model.feedforward_width == 4 * 96


def test_a_recipe_of_the_user_extends_one_of_ours_unless_the_folder_has_one(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "tiny_cpu"\nsteps = 7\n')
    settings = load_settings(mine)
    assert (settings.name, settings.steps) == ("mine", 7)
    assert settings.model == load_settings("tiny_cpu").model
    (tmp_path / "tiny_cpu.toml").write_text("[model]\nwidth = 24\nnum_heads = 2\n")
    assert load_settings(mine).model.width == 24


def test_the_feed_forward_width_of_a_run_follows_another_width_unless_it_is_its_own(tmp_path):
    shape = ("--model.width", "48", "--model.num_heads", "2")
    (tmp_path / "run.json").write_text(as_json(load_settings("tiny_cpu", shape)))
    wider = load_settings(tmp_path, ["--model.width", "96.0"])
    assert wider.model.feedforward_width == 4 * 96
    assert settings_with(wider, {"model.width": 24}).model.feedforward_width == 4 * 24
    own = settings_with(wider, {"model.feedforward_width": 50})
    assert settings_with(own, {"model.width": 24}).model.feedforward_width == 50


EARLIER = {  # as version 0.2.0 wrote them: what was removed has its default
    "data": {"unicode_form": "NFC", "mean_span_words": 3.8, "mask_token_share": 0.85},
    "layer_drop": {"schedule": "constant", "draw_per": "step", "draws": 4},
    "model": {"preset": "base", "num_layers": 12, "width": 768, "num_heads": 12},
    "checkpoint": {"keep_every": None, "background": False},
    "trouble": {"spike_factor": 2.0, "hang_minutes": 8.0, "skip_steps": 2},
    "watchdog": {"stuck_after_seconds": None},
    "electra": {"generator_layers": 1.0, "discriminator_weight": 50.0},
    "loggers": ["tensorboard", "mlflow"],
    "log_project": "bert",
}


def test_a_run_of_an_earlier_version_has_the_settings_that_took_the_place_of_its_own(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(EARLIER))
    now = {"data.mask_shares": (0.85, 0.1), "layer_drop.draw_per": 4}
    expected = settings_with(RunSettings(), now | {"layer_drop.schedule": "constant"})
    assert load_settings(tmp_path) == expected
    assert stored_settings(EARLIER) == flat(json.loads(as_json(expected)))


def test_a_removed_setting_with_another_value_is_refused_but_where_runs_are_compared(tmp_path):
    stored = stored_settings({"data": {"min_letter_ratio": 0.5, "min_document_characters": 0}})
    assert stored == flat(json.loads(as_json(RunSettings()))) | {"data.min_letter_ratio": 0.5}
    (tmp_path / "mine.toml").write_text("[data]\nmin_letter_ratio = 0.5\n")
    with pytest.raises(UserError, match="letter_ratio=0.5 .* filter the text"):
        load_settings(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").write_text("[model]\npreset = 'large'\n")
    with pytest.raises(UserError, match="preset='large' .* give num_layers"):
        load_settings(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").write_text("restarts_after = []\n")
    assert load_settings(tmp_path / "mine.toml").name == "mine"
    (tmp_path / "mine.toml").write_text("restarts_after = [5]\n")
    with pytest.raises(UserError, match="restarts_after=.5. is no longer a setting; remove it"):
        load_settings(tmp_path / "mine.toml")


def test_a_removed_value_is_refused_with_what_to_give_but_where_runs_are_compared(tmp_path):
    run = {"layer_drop": {"schedule": "constant", "draw_per": "sequence", "draws": 1}}
    (tmp_path / "run.json").write_text(json.dumps(run))
    stored = stored_settings(run)
    assert stored["layer_drop.draw_per"] == "sequence" and "layer_drop.draws" not in stored
    (tmp_path / "mine.toml").write_text("[layer_drop]\ndraw_per = 'sequence'\n")
    on_command_line = ["tiny_cpu", ["--layer_drop.draw_per", "sequence"]]
    refused = (
        "^layer_drop.draw_per='sequence' is no longer a value; .*; give micro_batch, step or a"
    )
    for words in ([tmp_path], [tmp_path / "mine.toml"], on_command_line):
        with pytest.raises(ConfigError, match=refused):
            load_settings(*words)


def test_corpus_is_a_short_name_for_data_corpus():
    assert load_settings("tiny_cpu", ["--corpus", "a.txt", "b"]).data.corpus == ("a.txt", "b")


def test_a_model_of_transformers_takes_the_place_of_what_a_recipe_sets_for_ours():
    found = load_settings("mini_hour", ["--model.transformers", "bert"])
    assert (found.model.positions, found.model.width) == ("own", 256)
    assert found.optimizer.relative_rate == 1.0  # no such tables
    attached = ["--model.transformers", "bert", "--model.positions", "t5"]
    found = load_settings("mini_hour", attached)
    assert (found.model.positions, found.optimizer.relative_rate) == ("t5", 16.0)
    with pytest.raises(ConfigError, match="model.width"):
        load_settings("mini_hour", ["--model.transformers", "bert", "--model.width", "abc"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.num_layer", "6"], "no --model.num_layer; did you mean --model.num_layers?"),
        (["--dropout", "0"], "there is no --dropout; use --model.dropout"),
        (["--num-layers", "3"], "there is no --num-layers; use --model.num_layers"),
        (["--every_steps", "5"], "use --evaluation.every_steps or --checkpoint.every_steps"),
        (["--model", "{}"], "there is no --model"),
        (["--checkpoint.pinned", "100", "200"], "200 belongs to no option"),
        (["--loggers", "tensorboard,wandbb"], "loggers.1='wandbb': input should be 'tensorboard' "),
        (["--log_project", "x"], "no --log_project; remove it: WANDB_PROJECT names the project"),
        (["--checkpoint.pinned", "0"], "checkpoint.pinned.0='0': input should be greater"),
        (["--model.num_layers", "six"], "model.num_layers='six': input should be a valid integer"),
        (["--model.norm", "sandwich"], "model.norm='sandwich': input should be 'pre' or 'post'"),
        (["--model.width", "33"], "width=33 cannot be split over model.num_heads=2"),
        (["--data.sequence_length", "64"], "longer than model.max_sequence_length=32"),
        (["--learning_rate.schedule", "warmup_linear_decay_exp"], "decay_rate is missing"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line_with_the_mend(words, message):
    with pytest.raises(ConfigError) as refused:
        load_settings("tiny_cpu", words)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unknown_and_broken_recipes_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no recipe 'tupe_bas'; did you mean tupe_base"):
        load_settings("tupe_bas")
    broken = tmp_path / "broken.toml"
    for text, message in (
        ("steps = = 3\n", "broken.toml is not valid TOML"),
        ('extends = "broken"\n', "which extends it in turn"),
        ("model = 3\n", "model=3: input should be"),
        ('extends = "tiny_cpi"\n', "none of ours has this name; did you mean tiny_cpu?"),
        ('extends = "nowhere"\n', "extends 'nowhere', but there is no"),
    ):
        broken.write_text(text)
        for words in ([], ["--trust-remote-code"]):
            with pytest.raises(ConfigError, match=message):
                load_settings(broken, words)


def test_a_choice_called_none_can_be_chosen_on_the_command_line():
    words = ["--layer_drop.schedule", "none", "--data.deduplicate", "none", "--steps", "1e6"]
    settings = load_settings("tiny_cpu", words)
    assert settings.layer_drop.schedule == settings.data.deduplicate == "none"
    assert settings.steps == 10**6
    drops = ["--layer_drop.schedule", "progressive", "--layer_drop.compat", "none"]
    assert load_settings("tiny_cpu", drops).layer_drop.compat == "none"
    # Where none means no value, it still does.
    assert load_settings("tiny_cpu", ["--optimizer.max_gradient_norm", "none"]).optimizer == (
        load_settings("tiny_cpu").optimizer.model_copy(update={"max_gradient_norm": None})
    )
