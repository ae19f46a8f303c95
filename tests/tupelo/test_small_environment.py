"""What runs in an environment without the packages that it does not use."""

import os
import subprocess
import sys

import pytest

from tests.forked_command import PYTHONPATH

# Neither imported nor found by importlib.metadata.
WITHOUT = """
import importlib.metadata, sys

ABSENT = "datasets matplotlib pandas pyarrow sacremoses scipy sklearn spacy transformers triton"
ABSENT = ABSENT.split()
find = importlib.metadata.Distribution.from_name

def from_name(name):
    if name.replace("scikit-learn", "sklearn") in ABSENT:
        raise importlib.metadata.PackageNotFoundError(name)
    return find(name)

importlib.metadata.Distribution.from_name = from_name
sys.modules.update(dict.fromkeys(ABSENT))
"""


@pytest.mark.slow("a run that imports everything anew")
def test_shards_are_built_and_a_model_trains_without_packages_of_extras_and_reports(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    documents = (f"Boat {n} is moved after boat {n * 7}, never both.\n\n" for n in range(300))
    (tmp_path / "text.txt").write_text("".join(documents))
    words = ("tiny_cpu", "--corpus", "text.txt", "--steps", "3", "--run-folder", "run")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{PYTHONPATH}"}
    subprocess.run(
        [sys.executable, "-m", "tupelo", "train", *words], cwd=tmp_path, env=environment, check=True
    )
    assert (tmp_path / "run" / "metrics.jsonl").read_text()
