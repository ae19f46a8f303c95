"""A build of shards and a run in an environment without the packages that they do not use."""

import os
import subprocess
import sys

import pytest

from tests.forked_command import PYTHONPATH

# Neither imported nor found by importlib.metadata.
WITHOUT = """
import importlib.metadata, sys

ABSENT = "datasets matplotlib pandas pyarrow sacremoses scipy sklearn spacy transformers".split()
find = importlib.metadata.Distribution.from_name

def from_name(name):
    if name.replace("scikit-learn", "sklearn") in ABSENT:
        raise importlib.metadata.PackageNotFoundError(name)
    return find(name)

importlib.metadata.Distribution.from_name = from_name
sys.modules.update(dict.fromkeys(ABSENT))
"""


def tupelo(folder, *words):
    """Run a command where a text, and none of these packages, is at hand."""
    (folder / "sitecustomize.py").write_text(WITHOUT)
    documents = (f"Boat {n} is moved after boat {n * 7}, never both.\n\n" for n in range(300))
    (folder / "text.txt").write_text("".join(documents))
    return subprocess.run(
        [sys.executable, "-m", "tupelo", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder}:{PYTHONPATH}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_shards_are_built_and_a_model_trains_without_packages_of_extras_and_reports(tmp_path):
    words = ("tiny_cpu", "--corpus", "text.txt", "--steps", "3", "--run-folder", "run")
    process = tupelo(tmp_path, "train", *words)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    ("options", "by", "package", "extra"),
    [
        (("text.txt", "--data.preset", "tupe"), "sentences=spacy", "spacy", "tupe-text"),
        (("hub:some/texts",), "this build", "datasets", "hub"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path, options, by, package, extra):
    process = tupelo(tmp_path, "data", "build", "--to", "shards", "--corpus", *options)
    assert process.stderr == (
        f"error: {by} needs the package {package}, which is not installed; install it with: "
        f"pip install -e '.[{extra}]'\n"
    )
    assert process.returncode == 1
