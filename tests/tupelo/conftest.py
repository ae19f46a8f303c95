import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.pretrain.conftest import command, shards

__all__ = ["command", "shards"]  # fixtures
ROOT = Path(__file__).parents[2]
PARTS = ["data_prep", "pretrain", "finetune", "ds_configs", "tupelo"]
DROPS = {"layer_drop.schedule": "constant", "layer_drop.theta_bar": 0.4}
PLAIN = {"engine.attention": "eager", "engine.cpu_kernels": "off"}


class Installed:
    """A copy that pip installed into an environment of its own, outside the checkout."""

    def __init__(self, environment, folder):
        self.programs, self.folder = environment / "bin", folder

    def run(self, *words, active=False, check=True):
        """Run `tupelo WORDS` in an empty folder, with or without the environment in PATH."""
        search = f"{self.programs}:{os.defpath}" if active else os.defpath
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        return subprocess.run(
            ["tupelo" if active else str(self.programs / "tupelo"), *map(str, words)],
            cwd=self.folder,
            env=kept | {"PATH": search, "OMP_NUM_THREADS": "1"},
            executable=str(self.programs / "tupelo"),
            capture_output=True,
            check=check,
            text=True,
        )


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    source, environment = folder / "source", folder / "environment"
    source.mkdir()
    for name in PARTS:
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    pip = [sys.executable, "-m", "pip"]
    wheels = str(folder / "wheels")
    build = [*pip, "wheel", *quiet, "--no-build-isolation", "-w", wheels, str(source)]
    subprocess.run(build, check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (place,) = environment.glob("lib/python*/site-packages")
    # The dependencies, without the .pth file of this checkout: only site-packages proper reads it.
    (place / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (wheel,) = (folder / "wheels").glob("tupelo-*.whl")
    python = environment / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", *quiet, wheel], check=True)
    shutil.rmtree(source)
    (folder / "elsewhere").mkdir()
    return Installed(environment, folder / "elsewhere")


@pytest.fixture(scope="session")
def run(command, tmp_path_factory):
    """A run with layer drop on one rank, in fp32 by plain kernels, with a line for each step."""
    values = {"name": "small", "log_every_steps": 1, "engine.ds_config": "zero0_fp32"}
    values |= DROPS | PLAIN
    words = [word for name, value in values.items() for word in (f"--{name}", value)]
    return command.train(tmp_path_factory.mktemp("runs") / "run", *words)


@pytest.fixture(scope="session")
def export(command, run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "small"
    status, _, errors = command.run(["export", str(run), "--to", str(folder)])
    assert status == 0, errors
    return folder
