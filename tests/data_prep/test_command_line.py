import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_prep.commands.catalog import COMMANDS
from data_prep.commands.options import FIELDS
from data_prep.files.errors import ConfigError
from data_prep.settings import PRESETS, BuildSettings
from data_prep.shards.manifest import read_manifest
from tests.data_prep.small_shards import random_documents, write_folder
from tupelo.__main__ import main


@pytest.fixture
def folder(tmp_path):
    documents = {"train": random_documents(60), "valid": random_documents(30, seed=1)}
    return write_folder(tmp_path / "shards", documents)


@pytest.fixture
def asked(monkeypatch):
    """Replaces the build and records its arguments."""
    calls = []

    def build(settings, folder, *, workers):
        calls.append((settings, folder, workers))

    monkeypatch.setitem(sys.modules, "data_prep.pipeline.build", SimpleNamespace(build=build))
    return calls


def run(*arguments):
    return main(["data"] + [str(argument) for argument in arguments])


def test_a_build_has_the_default_settings_but_for_those_that_are_given(asked):
    run("build", "--to", "x")
    words = ["--corpus", "a", "b:weight=2", "--data.deduplicate", "none"]
    words += ["--data.lowercase", "false", "--data.max_words", "none", "--workers", 3]
    run("build", "--to", "y", *words, "--data.valid_fraction", "0.25")
    given = {"corpus": ("a", "b:weight=2"), "deduplicate": "none"}
    given |= {"lowercase": False, "valid_fraction": 0.25}
    assert asked == [(BuildSettings(), Path("x"), None), (BuildSettings(**given), Path("y"), 3)]
    run("build", "--to", "x", "--data.preset", "tupe", "--model.vocabulary_size", "5000")
    expected = PRESETS["tupe"] | {"preset": "tupe", "vocabulary_size": 5000}
    assert asked[-1][0] == BuildSettings.model_validate(expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("build --to x --data.sequence_length 3", "data.sequence_length='3': input should be"),
        ("show FOLDER --rows 0", "argument --rows: 0: not a whole number of at least 1"),
        ("build --to x --workers -1", "argument --workers: -1: not a whole number"),
        ("build --to x --vocabulary-size 9", "no --vocabulary-size; use --model.vocabulary_size"),
        ("build --to x --data.min_letter_ratio 0.1", "no --data.min_letter_ratio; filter the text"),
        ("build --to x --lr 1", "no --lr; use --learning_rate.peak, or --learning_rates of finetu"),
        ("build --to x --batch-size 1", "no --batch-size; use --batch.global_sequences, or "),
        ("build --to x --data.tokenizer FOLDER --model.vocabulary_size 300", "size has no effect"),
        ("plan", "no command 'plan'; use tupelo train RECIPE --dry-run --measure 60"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(asked, folder, words, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        run(*(folder if word == "FOLDER" else word for word in words.split()))


def test_verify_summarises_a_sound_folder_or_exits_with_1(folder, capsys):
    assert run("verify", folder) == 0
    out = capsys.readouterr().out
    split = read_manifest(folder).splits["train"]
    assert f"{folder}: fine" in out
    assert f"{split.tokens:,} tokens, {split.rows:,} sequences of 16" in out
    (folder / "valid-00000.h5").unlink()
    assert run("verify", folder) == 1
    assert "no such file" in capsys.readouterr().out


def test_help_fits_80_columns_and_explains_each_command_and_setting(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            run(name, "--help")
        # The name of the program in the first lines is that of this shell, however long.
        text = capsys.readouterr().out.partition("\n\n")[2]
        assert max(map(len, text.splitlines())) <= 80
        description = text.partition("\noptions:")[0]
        assert len(description.split()) > 20, "more than its line in the overview"
        if name == "build":
            words = " ".join(text.split())
            assert all(f"--{one} " in words for one in FIELDS)
            assert all(field.description in words for field in FIELDS.values())
