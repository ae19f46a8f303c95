import os
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


@pytest.mark.parametrize("package", ["tupelo", "data_prep"])
def test_a_start_without_the_packages_is_one_line(package):
    run = subprocess.run(
        # -S: without site-packages.
        [sys.executable, "-S", "-m", package, *(["train"] if package != "data_prep" else [])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("error: the package pydantic is not installed for ")


def test_threads_that_wait_leave_the_processor_to_other_programs(monkeypatch):
    """libgomp reads the variable when torch is imported, which is after this."""
    for name in WAITING:
        monkeypatch.setenv(name, "x")  # so that it is restored
        monkeypatch.delenv(name)
    with pytest.raises(SystemExit):
        run_program(lambda _: os.environ["GOMP_SPINCOUNT"])
    assert os.environ["GOMP_SPINCOUNT"] == "10000"
