import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from data_prep.__main__ import main
from data_prep.settings import PRESETS, BuildSettings
from data_prep.shards.manifest import read_manifest
from data_prep.sources.source import CorpusError
from tests.data_prep.small_shards import random_documents, write_folder

ROOT = Path(__file__).parents[2]
COMMANDS = ["build", "verify", "repair", "show", "split", "import"]


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

    replace_build(monkeypatch, build)
    return calls


def replace_build(monkeypatch, build):
    module = types.ModuleType("data_prep.pipeline.build")
    module.build = build
    monkeypatch.setitem(sys.modules, "data_prep.pipeline.build", module)


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_build_without_options_has_the_default_settings(asked):
    assert run("build", "--to", "x") == 0
    assert asked == [(BuildSettings(), Path("x"), None)]


def other_value(field):
    """Return the words of a value of this setting that is not its default."""
    kinds = [kind for kind in get_args(field.annotation) or [field.annotation]]
    if get_origin(field.annotation) is Literal:
        return [next(value for value in kinds if value != field.default)]
    if get_origin(field.annotation) is tuple:
        return ["a.txt", "b.txt:weight=2"]
    if get_origin(kinds[0]) is Literal:
        return [get_args(kinds[0])[0]]
    if field.annotation is float:
        return ["0.25"]
    return ["1234"]


@pytest.mark.parametrize("name", BuildSettings.model_fields)
def test_every_setting_has_an_option_that_changes_it_alone(asked, name):
    field = BuildSettings.model_fields[name]
    option, expected = name.replace("_", "-"), {}
    if field.annotation is bool:
        assert run("build", "--to", "x", f"--{'no-' if field.default else ''}{option}") == 0
        expected[name] = not field.default
    else:
        words = other_value(field)
        assert run("build", "--to", "x", f"--{option}", *words) == 0
        expected[name] = words if len(words) > 1 else words[0]
    given = BuildSettings.model_validate(expected)
    assert asked[0][0] == given
    assert given != BuildSettings()


def test_a_preset_gives_what_is_not_given(asked):
    run("build", "--to", "x", "--preset", "tupe", "--vocabulary-size", "5000", "--workers", "3")
    settings, _, workers = asked[0]
    expected = PRESETS["tupe"] | {"preset": "tupe", "vocabulary_size": 5000}
    assert settings == BuildSettings.model_validate(expected)
    assert workers == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--sequence-length", "3"], "error: --sequence-length 3: Input should be greater"),
        (["--valid-fraction", "0.7"], "error: --valid-fraction 0.7: Input should be less"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(asked, capsys, options, expected):
    assert run("build", "--to", "x", *options) == 2
    error = capsys.readouterr().err
    assert error.startswith(expected)
    assert error.count("\n") == 1


def test_user_errors_are_one_line_and_status_2(monkeypatch, capsys):
    def build(*_, **__):
        raise CorpusError("what and why")

    replace_build(monkeypatch, build)
    assert run("build", "--to", "x") == 2
    assert capsys.readouterr().err == "error: what and why\n"


def test_a_build_that_is_stopped_says_how_to_resume(monkeypatch, capsys, folder):
    def build(*_, **__):
        raise KeyboardInterrupt

    replace_build(monkeypatch, build)
    assert run("build", "--to", "x") == 130
    assert capsys.readouterr().err == "stopped; the same command resumes the build\n"


def test_verify_summarises_a_sound_folder_or_exits_with_1(folder, capsys):
    assert run("verify", folder) == 0
    out = capsys.readouterr().out
    split = read_manifest(folder).splits["train"]
    assert f"{folder}: fine" in out
    assert f"{split.tokens:,} tokens, {split.rows:,} sequences of 16" in out
    (folder / "valid-00000.h5").unlink()
    assert run("verify", folder) == 1
    assert "no such file" in capsys.readouterr().out


def test_repair_restores_what_verify_reports(corpus, tmp_path, capsys):
    folder = tmp_path / "shards"
    options = ["--corpus", corpus, "--sequence-length", "16", "--workers", "1"]
    assert run("build", "--to", folder, *options) == 0
    assert run("repair", folder) == 0
    assert capsys.readouterr().out == f"{folder}: nothing to repair\n"
    before = (folder / "train-00000.h5").read_bytes()
    (folder / "train-00000.h5").unlink()
    assert run("repair", folder, "--workers", "1") == 0
    assert capsys.readouterr().out == f"{folder}: restored train-00000.h5\n"
    assert (folder / "train-00000.h5").read_bytes() == before
    assert run("verify", folder) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["split", "FOLDER", "--to", "x", "--valid-fraction", "0.7"],
        ["show", "FOLDER", "--rows", "0"],
        ["build", "--to", "x", "--workers", "-1"],
    ],
)
def test_numbers_out_of_their_bounds_are_refused(folder, capsys, arguments):
    with pytest.raises(SystemExit) as refused:
        run(*(folder if word == "FOLDER" else word for word in arguments))
    assert refused.value.code == 2
    assert f"{arguments[-1]}: " in capsys.readouterr().err


def process(*command, **options):
    return subprocess.run(
        ["bash", "-c", "set -o pipefail; " + " ".join(map(str, command))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_a_reader_that_goes_away_is_no_error(folder):
    show = f"{sys.executable} -m data_prep show {folder} --split train --rows 1000"
    done = process(show, "| head -n 1")
    assert done.stdout.startswith(f"{folder}: a test")
    assert done.stderr == ""
    assert done.returncode == 141


def test_help_names_every_command_and_every_setting(capsys):
    for arguments in (["--help"], ["build", "--help"]):
        with pytest.raises(SystemExit) as left:
            run(*arguments)
        assert left.value.code == 0
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    for name in COMMANDS:
        assert f" {name} " in text
    for name, field in BuildSettings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert field.description in text


def test_help_fits_80_columns_and_explains_each_command(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            run(name, "--help")
        # The name of the program in the first lines is that of this shell, however long.
        text = capsys.readouterr().out.partition("\n\n")[2]
        assert max(map(len, text.splitlines())) <= 80
        description = text.partition("\noptions:")[0]
        assert len(description.split()) > 20, "more than its line in the overview"


def test_help_loads_no_library_that_only_a_command_needs():
    heavy = "spacy torch transformers datasets pyarrow sacremoses matplotlib"
    code = (
        "import sys; from data_prep.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {heavy.split()} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
