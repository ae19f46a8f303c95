"""What `import tupelo` costs, and what it offers."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tupelo

ROOT = Path(__file__).parents[2]

IMPORTS = """
import sys
import tupelo
heavy = {"torch", "deepspeed", "transformers", "numpy", "pydantic"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert set(dir(tupelo)) == {*tupelo.__all__, "__version__"}
"""


def test_the_package_is_imported_without_what_it_may_need_later():
    subprocess.run([sys.executable, "-c", IMPORTS], cwd=ROOT, check=True)
    assert all(getattr(tupelo, name).__doc__ for name in tupelo.__all__)


def test_type_checkers_see_the_names_that_are_imported_when_used():
    tree = ast.parse((ROOT / "tupelo" / "__init__.py").read_text())
    imported = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert imported == tupelo.MODULES
    with pytest.raises(AttributeError, match="module 'tupelo' has no attribute 'lode'"):
        _ = tupelo.lode
