import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


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
