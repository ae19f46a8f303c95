import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tupelo import __version__

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
IMPORT = "import site, sys; site.addsitedir(sys.argv[1]); import tupelo; print(tupelo.__version__)"


@pytest.mark.slow("builds a wheel; the tour of the commands runs with the same copy")
def test_a_copy_holds_every_file_that_is_not_code(installed):
    listed = installed.run("--help").stdout
    assert "finetune ..." in listed and "data ..." in listed
    tracked = subprocess.run(
        ["git", "ls-files", "pretrain", "finetune", "data_prep", "ds_configs", "tupelo"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    (packages,) = (installed.programs.parent / "lib").glob("python*/site-packages")
    missing = {name for name in tracked.stdout.split() if not (packages / name).is_file()}
    assert missing == set()


def test_beside_the_checkout_the_package_is_imported_and_not_its_folder(tmp_path):
    """Python looks into the working directory first, where the checkout is a folder "tupelo"."""
    checkout, packages = tmp_path / "tupelo", tmp_path / "packages"
    shutil.copytree(ROOT / "tupelo", checkout / "tupelo")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    built = [sys.executable, "-c", BUILD, tmp_path]
    subprocess.run(built, cwd=checkout, check=True, capture_output=True)
    shutil.unpack_archive(*tmp_path.glob("*.whl"), packages, "zip")
    words = [sys.executable, "-S", "-c", IMPORT, packages]  # -S: without this checkout
    done = subprocess.run(words, cwd=tmp_path, env={}, capture_output=True, text=True)
    assert done.stdout.strip() == __version__, done.stderr
