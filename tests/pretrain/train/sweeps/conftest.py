"""Sweeps whose trainer is a stub."""

import sys

import pytest

from pretrain.__main__ import main
from pretrain.commands import sweep
from pretrain.train.sweeps import plan
from tests.pretrain.train.launching.conftest import stubs

__all__ = ["stubs"]

SIZES = ("--data.sequence_length", "32", "--model.vocabulary_size", "256")


@pytest.fixture
def here(stubs, monkeypatch):
    """The folder of the stubs, which take the place of the comparison too."""
    monkeypatch.chdir(stubs.folder)
    monkeypatch.setattr(sys, "executable", str(stubs.bin / "python"))
    monkeypatch.setenv("PATH", str(stubs.bin), prepend=":")
    monkeypatch.setenv("CALLS", str(stubs.log))
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def changes(folder, *asked, **how):
        """Stubs write no settings."""
        is_of_stub = (folder / "run.json").read_text().strip() == "{}"
        return (False, {}) if is_of_stub else real_changes(folder, *asked, **how)

    real_changes = plan.compared
    monkeypatch.setattr(plan, "compared", changes)
    compared = []
    monkeypatch.setattr(sweep, "run_command", lambda _, words: compared.append(words))
    stubs.compared = compared
    return stubs


@pytest.fixture
def run(here, shards):
    """Run a sweep over existing shards."""

    def run(*words):
        main(["sweep", *map(str, words), "--data.shards", str(shards), *SIZES])

    return run


def trained(stubs):
    """Return arm, folder, seed and whether it was resumed, of each training so far."""
    found = []
    for call in stubs.calls(" pretrain train "):
        words = call.split()
        seed, folder = (words[words.index(name) + 1] for name in ("--seed", "--run-folder"))
        found.append((words[4], folder, seed, "--resume" in words))
    return found
