import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.files.program import run_program, shell_command

ROOT = Path(__file__).parents[3]
WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # variables of libgomp


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment with python and tupelo, and a PATH without it."""
    folder = tmp_path / "my env" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "tupelo"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.delenv("TUPELO_COMMAND", raising=False)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return folder


def test_a_command_is_short_where_the_environment_is_active(environment, monkeypatch):
    monkeypatch.setenv("PATH", f"{environment}:/usr/bin")
    assert shell_command("train", Path("runs/my run"), "--resume") == (
        "tupelo train 'runs/my run' --resume"
    )


def test_a_command_names_its_program_where_the_environment_is_not_active(environment):
    assert shell_command("train") == f"'{environment / 'tupelo'}' train"
    (environment / "tupelo").unlink()
    assert shell_command("train") == f"'{environment / 'python'}' -m tupelo train"


def test_shell_scripts_name_the_command_of_the_shell_that_called_them(environment, monkeypatch):
    monkeypatch.setenv("TUPELO_COMMAND", "cd /there && .venv/bin/tupelo")
    assert shell_command("train", "r") == "cd /there && .venv/bin/tupelo train r"


def test_a_start_without_the_packages_is_one_line():
    run = subprocess.run(
        # -S: without site-packages.
        [sys.executable, "-S", "-m", "tupelo", "train"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("error: the package pydantic is not installed for ")
    activate = ROOT / ".venv" / "bin" / "activate"
    assert (f"source {activate}" in run.stderr) == activate.is_file() == ("source" in run.stderr)


def test_a_file_that_the_system_refuses_is_one_line():
    with pytest.raises(SystemExit) as exit:
        run_program(lambda words: Path("n" * 300).write_text(""))
    assert str(exit.value.code).endswith("nnn: File name too long")


@pytest.mark.parametrize(("running", "looks"), [(1, 10000), (2, 0)])
def test_threads_that_wait_leave_the_processor_to_other_programs(tmp_path, running, looks):
    load = tmp_path / "loadavg"
    load.write_text(f"2.00 1.00 0.50 {running}/80 11206\n")
    inherited = {name: value for name, value in os.environ.items() if name not in WAITING}
    program = """
import ctypes, importlib.util, pathlib, sys
from data_prep.files import program
program.LOAD = pathlib.Path(sys.argv[1])
def main(words):  # as `import torch` does, in less time
    (torch,) = importlib.util.find_spec("torch").submodule_search_locations
    ctypes.CDLL(str(next(pathlib.Path(torch).parent.glob("torch*/**/libgomp*"))))
program.run_program(main)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, load],
        cwd=ROOT,
        env={**inherited, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"GOMP_SPINCOUNT = '{looks}'" in run.stderr


def test_as_many_files_may_be_open_as_the_system_permits():
    found, hard = [], resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (900, hard))
    with pytest.raises(SystemExit):
        run_program(lambda _: found.append(resource.getrlimit(resource.RLIMIT_NOFILE)))
    assert found == [(hard, hard)]


def test_a_reader_that_goes_away_is_no_error(monkeypatch):
    def fails(_):
        raise BrokenPipeError

    monkeypatch.setattr(os, "dup2", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        run_program(fails)
    assert ended.value.code == 141
