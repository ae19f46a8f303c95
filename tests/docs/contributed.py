"""Runs a command of pretrain or finetune after an addition that CONTRIBUTING.md describes.

    python -m tests.docs.contributed FILE,FILE PACKAGE WORDS...

FILE names a block of code: the module that it is added to.
"""

import importlib
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"```python\n# (\S+)\.py\n(.*?)```", re.DOTALL)
BLOCKS = dict(BLOCK.findall((Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()))

if __name__ == "__main__":
    files, package, *words = sys.argv[1:]
    for file in files.split(","):
        module = importlib.import_module(file.replace("/", "."))
        exec(BLOCKS[file], vars(module))
    importlib.import_module(f"{package}.__main__").main(words)
