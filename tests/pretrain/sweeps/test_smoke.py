"""`--smoke`: every recipe becomes tiny, and what the command line gives stays."""

from pathlib import Path

import pytest

from data_prep.command_line import CommandParser
from pretrain.commands import sweep as sweep_command
from pretrain.config.recipe import load_settings
from pretrain.model.cost import parameters_by_group
from pretrain.sweeps.plan import Sweep

ROOT = Path(__file__).parents[3]


def sweep(*words):
    parser = CommandParser(allow_abbrev=False)
    sweep_command.add_arguments(parser)
    return Sweep(parser.parse_args(list(words)))


@pytest.mark.parametrize("recipe", ["bert_large", "electra_base", "pld_base", "tupe_r_pld"])
def test_a_recipe_becomes_tiny_and_keeps_its_kind(recipe):
    (arm,) = sweep(recipe, "--smoke").arms
    settings, own = arm.settings, load_settings(recipe)
    assert (
        parameters_by_group(settings.model, settings.objective, settings.electra)["total"] < 100_000
    )
    assert settings.steps * settings.batch.global_sequences * settings.data.sequence_length < 1e5
    assert settings.layer_drop == own.layer_drop and settings.optimizer == own.optimizer
    for name in ("positions", "norm", "output_bias"):
        assert settings.model.model_dump()[name] == own.model.model_dump()[name]


def test_what_the_command_line_gives_stays(tmp_path):
    words = ("--steps", "7", "--model.width", "64", "--data.shards", str(tmp_path))
    (arm,) = sweep("bert_a", "--smoke", *words).arms
    assert (arm.settings.steps, arm.settings.model.width) == (7, 64)
    assert arm.settings.data == load_settings("bert_a", words).data
    (arm,) = sweep("bert_a", "--smoke", "--corpus", "mine.txt").arms
    assert arm.settings.data.corpus == ("mine.txt",)


@pytest.mark.parametrize("seeds", ["3", "[4, 8]"])
def test_a_smoke_test_has_one_seed_unless_the_command_line_gives_more(tmp_path, seeds):
    (tmp_path / "mine.toml").write_text(f"seeds = {seeds}\narms.a = 'bert_a'")
    smoke = sweep(str(tmp_path / "mine.toml"), "--smoke")
    assert smoke.seeds_of(smoke.arms[0]) == [4 if "4" in seeds else smoke.arms[0].settings.seed]
    several = sweep(str(tmp_path / "mine.toml"), "--smoke", "--seeds", "2")
    assert len(several.seeds_of(several.arms[0])) == 2
