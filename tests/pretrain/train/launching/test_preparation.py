"""Data of a run: used as they are, without loading torch, or built first."""

import os
import subprocess
import sys

import pytest

from data_prep.command_line import CommandParser
from pretrain.config.recipe import add_settings, read_settings
from pretrain.train.launching.given_words import given_words, setting_words
from tests.forked_command import PYTHONPATH

SIZES = ("--data.sequence_length", "32", "--model.vocabulary_size", "256")

WITHOUT_TORCH = """
import sys
from pretrain.__main__ import main
main(sys.argv[1:])
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize("command", [("prepare", "tiny_cpu"), ("sweep", "tiny_cpu", "--dry-run")])
def test_what_finds_its_shards_and_starts_others_loads_no_torch(stubs, shards, command):
    """Training loads it, in a process of its own."""
    words = (*command, "--data.shards", str(shards), *SIZES)
    start = f"import sys; sys.executable = {str(stubs.bin / 'python')!r}\n{WITHOUT_TORCH}"
    search = f"{stubs.bin}:{os.defpath}"
    given = {"CALLS": str(stubs.log), "PATH": search, "PYTHONPATH": PYTHONPATH}
    subprocess.run([sys.executable, "-c", start, *words], cwd=stubs.folder, env=given, check=True)
    assert len(stubs.calls()) == (command[0] == "sweep")


@pytest.mark.parametrize(
    "words",
    [
        "tiny_cpu",
        "tiny_cpu --corpus a b --steps 7 --run-folder f --resume",
        "tiny_cpu --data.corpus x,y --initial_weights none --model.dropout 0",
        "tiny_cpu --checkpoint.pinned 1,2 --loggers none",
        "tiny_cpu --corpus=-odd --optimizer.betas=0.9,0.98 --resume",
    ],
)
def test_given_words_are_read_as_the_same_arguments(words):
    parser = CommandParser(allow_abbrev=False)
    parser.add_argument("--run-folder")
    parser.add_argument("--resume", action="store_true")
    add_settings(parser)
    arguments = parser.parse_args(words.split())
    again = given_words(arguments)
    assert parser.parse_args(again) == arguments
    assert sorted(" ".join(again).split()) == sorted(words.replace("betas=", "betas ").split())
    settings = parser.parse_args(setting_words(arguments))
    assert (settings.run_folder, settings.resume) == (None, False)
    assert read_settings(settings) == read_settings(arguments)
