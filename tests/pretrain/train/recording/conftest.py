"""A checkout of this code in git."""

import subprocess

import pytest

FILE = "pretrain/train/recording/provenance.py"  # by which a checkout of this code is known


def git(folder, *words):
    names = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    found = subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    (folder / FILE).parent.mkdir(parents=True)
    (folder / FILE).write_text("first = 1\n")
    (folder / ".gitignore").write_text("/runs/\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "First")
    return folder
