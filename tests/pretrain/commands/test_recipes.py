"""The list of recipes shows what extends what."""

import re
import tomllib

from pretrain.__main__ import main
from pretrain.config.recipe_files import recipe_files


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
