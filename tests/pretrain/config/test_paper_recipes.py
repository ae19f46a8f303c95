"""Recipes of the papers' systems: sizes as published, and what each changes in its neighbour."""

import pytest

from data_prep.command_line import CommandParser
from pretrain.commands import sweep
from pretrain.config.recipe import load_settings
from pretrain.config.settings import flat
from pretrain.model.cost import parameters_by_group
from pretrain.train.sweeps.plan import Sweep

# In millions: TUPE Sec. 3.3 (+1.18), Table 3 (330), Devlin et al. (110); head and 32,768 words too.
BASES = ("bert", "bert_r", "rope", "shaw", "t5", "alibi", "pld")
PUBLISHED = {
    **dict.fromkeys((f"{name}_base" for name in BASES), 110),
    **dict.fromkeys((f"pld_base_{name}" for name in ("baseline", "prenorm", "bing_bert")), 110),
    **dict.fromkeys(("tupe_base", "tupe_a_base", "tie_cls_base", "bert_ad_base"), 111.18),
    **{"bert_large": 330, "tupe_large": 332},
}


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_a_system_has_about_as_many_parameters_as_published(recipe):
    settings = load_settings(recipe)
    total = parameters_by_group(settings.model)["total"]
    assert total / 1e6 == pytest.approx(PUBLISHED[recipe], rel=0.03)
    # 12 D^2 of matrices, 9 D of their biases, 4 D of norms
    width, layers = settings.model.width, settings.model.num_layers
    blocks = layers * (12 * width**2 + 13 * width)
    assert parameters_by_group(settings.model)["blocks"] == blocks


def differences(recipe, other):
    """Return the settings that two recipes have different, with the values of the first."""
    ours, theirs = (flat(load_settings(name).model_dump()) for name in (recipe, other))
    return {name: ours[name] for name in ours if ours[name] != theirs[name] and name != "name"}


def test_the_systems_of_tupes_table_2_differ_in_their_positions_alone():
    positions = {
        "bert_r_base": "bert-r",
        "tupe_base": "tupe-r",
        "tupe_a_base": "tupe-a",
        "tie_cls_base": "tupe-a-tie-cls",
        "bert_ad_base": "bert-ad",
        "rope_base": "rope",
        "shaw_base": "shaw",
        "t5_base": "t5",
        "alibi_base": "alibi",
    }
    for recipe, encoding in positions.items():
        assert differences(recipe, "bert_base") == {"model.positions": encoding}


def test_the_sweep_of_tupes_table_2_keeps_the_checkpoints_of_its_figures():
    """The rows at 300 k steps, and Fig. 4b and 4c: 100 k, 300 k and 600 k."""
    parser = CommandParser(allow_abbrev=False)
    sweep.add_arguments(parser)
    arms = Sweep(parser.parse_args(["tupe_table2", "--corpus", "text.txt"])).arms
    assert len(arms) == 6
    for arm in arms:
        assert set(arm.settings.checkpoint.pinned) >= {100_000, 300_000, 600_000}


def test_tupe_large_is_bert_large_with_other_positions_and_keeps_300k():
    assert differences("tupe_large", "bert_large") == {"model.positions": "tupe-r"}
    large = load_settings("tupe_large")
    assert 300_000 in large.checkpoint.pinned and large.steps == 1_000_000
    assert (large.model.num_layers, large.model.width, large.model.num_heads) == (24, 1024, 16)
    shape = {"model.num_layers", "model.width", "model.num_heads"}
    shape |= {"model.feedforward_width", "engine.ds_config"}
    assert set(differences("bert_large", "bert_base")) == shape


def test_the_control_of_layer_drop_lacks_layer_drop_alone():
    assert differences("pld_base_prenorm", "pld_base") == {"layer_drop.schedule": "none"}


def test_bing_berts_run_has_the_values_of_its_files():
    """deepspeed_bsz4k_progressive_layer_drop_config_seq128.json and bert_base_large_lr.json."""
    settings = load_settings("pld_base_bing_bert")
    assert settings.batch.global_sequences == 4096
    assert settings.learning_rate.model_dump() == {
        "schedule": "warmup_linear_decay_exp",
        "peak": 1e-3,
        "warmup_ratio": 0.02,
        "decay_rate": 0.99,
        "decay_steps": 1000,
    }
    optimizer, drop = settings.optimizer, settings.layer_drop
    assert (optimizer.weight_decay, optimizer.bias_correction) == (0.01, False)
    assert (optimizer.betas, optimizer.epsilon) == ((0.9, 0.999), 1e-8)
    assert (optimizer.max_gradient_norm, settings.steps) == (1.0, 200_000)
    assert (drop.theta_bar, drop.gamma, drop.compat) == (0.5, 0.001, "deepspeed")
    model = settings.model
    assert (model.dropout, model.attention_dropout) == (0.1, 0.1)
    assert (model.initializer_range, model.branch_initialisation) == (0.02, "depth_scaled")
    assert set(differences("pld_base_bing_bert", "pld_base")) == {
        "model.branch_initialisation",
        *("optimizer.bias_correction", "optimizer.epsilon"),
        *("layer_drop.gamma", "layer_drop.compat"),
    }
