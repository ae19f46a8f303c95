"""The pages of --help, as a terminal of 80 columns shows them."""

import re

import pytest

from data_prep.command_line import value_in_words
from finetune.commands.catalog import COMMANDS as FINE_TUNING
from pretrain.commands.catalog import COMMANDS
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import flat
from tupelo.__main__ import main


@pytest.fixture
def page(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")

    def show(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        assert ended.value.code in (0, None)
        return capsys.readouterr().out

    return show


def defaults(text):
    """Return the defaults of a page by setting."""
    options = re.split(r"^  --", text, flags=re.MULTILINE)[1:]
    found = {}
    for option in options:
        shown = re.search(r"\(default: (.*?)\)$", " ".join(option.split("\n\n")[0].split()))
        if shown:
            found[option.split()[0]] = shown[1]
    return found


@pytest.mark.parametrize("recipe", ["tupe_base", "tupe_r_pld", "tiny_cpu"])
@pytest.mark.parametrize("command", ["train", "profile"])
def test_help_with_a_recipe_shows_its_values(page, command, recipe):
    shown = defaults(page(command, recipe, "--help"))
    settings = flat(load_settings(recipe).model_dump())
    assert len(shown) > 60 and shown["name"] == recipe
    for name in shown.keys() & settings.keys():
        assert shown[name] == " ".join(value_in_words(settings[name]).split()), name


def test_help_shows_the_recipe_wherever_it_is_named(page, tmp_path):
    theirs = tmp_path / "theirs.toml"
    theirs.write_text('[model]\ntransformers = "bert"\n')
    assert defaults(page("train", str(theirs), "--help"))["model.transformers"] == "bert"
    assert page("train", "--help", "tupe_r") == page("train", "tupe_r", "--help")
    assert defaults(page("train", "--help"))["name"] == "run"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_fits_80_columns_and_its_usage_is_short(page, command):
    text = page(command, "--help")
    assert max(map(len, text.splitlines())) <= 80
    usage = text.partition("\n\n")[0]
    assert usage.startswith(f"usage: tupelo {command} ") and usage.count("\n") <= 2


@pytest.mark.parametrize("command", FINE_TUNING)
def test_a_page_of_fine_tuning_fits_80_columns(page, command):
    text = page("finetune", command, "--help")
    assert max(map(len, text.splitlines())) <= 80


def test_types_are_words_and_settings_come_by_section(page):
    text = page("train", "tupe_r", "--help")
    for type_name in ("tuple", "Path ", " str", " int", "float", "bool", "None"):
        assert f"--data.corpus {type_name}" not in text and f"{type_name}\n" not in text
    for words in ("--steps NUMBER", "--model.norm pre|post", "--data.moses true|false"):
        assert words in text
    titles = re.findall(r"^(\w+):$", text, flags=re.MULTILINE)
    assert titles[:4] == ["options", "run", "data", "model"] and titles[-1] == "engine"
    assert text.index("--dry-run") < text.index("--seed") < text.index("--data.corpus")


def test_without_a_recipe_or_a_command_that_exists_all_are_listed(capsys):
    with pytest.raises(ConfigError, match="'finetun'; did you mean finetune.; one of recipes, "):
        main(["finetun"])
    for command in ("train", "prepare", "profile"):
        with pytest.raises(ConfigError, match="^name a recipe$"):
            main([command])
        listed = capsys.readouterr().err
        assert "\ntupe_base " in listed and "\ntiny_cpu " in listed
