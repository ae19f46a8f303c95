"""The list of recipes shows what extends what, and its example is a recipe."""

import re
import tomllib

from pretrain.__main__ import main
from pretrain.commands.recipes import EXAMPLE
from pretrain.config.recipe import load_settings
from pretrain.config.recipe_files import first_comment, recipe_files


def test_each_recipe_is_listed_once_below_the_one_that_it_extends(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    main(["recipes"])
    listed = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    above: dict[int, str] = {}
    found = {}
    for line in listed:
        spaces, name, summary = re.fullmatch(r"( *)(\w+) +(.+)", line).groups()
        above[len(spaces)] = name
        found[name] = (above.get(len(spaces) - 2), summary)
    files = recipe_files().values()
    for file in files:
        text = file.read_text()
        first_line = text.splitlines()[0].removeprefix("# ")
        assert found[file.stem] == (tomllib.loads(text).get("extends"), first_line)
    assert len(listed) == len(files)


def test_the_example_is_a_recipe(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("\n".join(line.strip() for line in EXAMPLE.splitlines()))
    settings = load_settings(file)
    changed = {"num_layers": 6}
    assert settings.model == load_settings("tupe_r").model.model_copy(update=changed)
    assert settings.learning_rate.peak == 5e-4
    assert first_comment(file) == "Its first line, for lists."
