"""The attention kernels through the real compiler; no GPU is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import compile_kernels
from tests.forked_command import environment

ROOT = Path(__file__).parents[2]
FOUR = {"forward", "query_gradient", "key_value_gradient", "bias_gradient"}

# A tile that no architecture has the registers for.
WITH_HUGE_TILES = """
from benchmarks import compile_kernels
from pretrain.model.kernels.triton_tilings import TILINGS, Tiling, Tilings

TILINGS[80, 64] = Tilings(*[Tiling(128, 128, 4, 2)] * 4)
compile_kernels.main()
"""


def run(*words):
    """Run Python with the kernels compiled, not interpreted as in this process."""
    compiled = {name: value for name, value in environment().items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=ROOT, env=compiled, capture_output=True, text=True
    )


@pytest.mark.slow("compiles every kernel")
@pytest.mark.parametrize(
    ("limits_kib", "head_widths", "case"),
    [
        # the row of 80 is also what consumer GPUs run, which have 99 KiB
        ({80: 99, 90: 227}, (64, 128), "odd-dropout"),
        ({86: 99, 89: 99, 100: 227, 120: 99}, (64,), "dropout"),
    ],
    ids=["A100 and H100", "others"],
)
def test_no_kernel_spills_on_the_gpus_that_are_named(tmp_path, limits_kib, head_widths, case):
    finished = run(
        *("benchmarks/compile_kernels.py", "--json", tmp_path / "rows.json", "--dtypes", "bf16"),
        *("--head-widths", *head_widths, "--cases", case, "--architectures", *limits_kib),
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr[-3000:]
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert len(rows) == len(limits_kib) * len(head_widths) * len(FOUR)
    assert {row["kernel"].removesuffix("_kernel") for row in rows} == FOUR
    for row in rows:
        assert row["spilled_bytes"] == 0 and row["tensor_core_instructions"] > 0
        assert row["shared_memory_bytes"] <= limits_kib[row["architecture"]] * 1024


@pytest.mark.slow("compiles for a GPU")
def test_a_kernel_that_spills_is_a_failure(tmp_path):
    choice = ("--architectures", 80, "--dtypes", "bf16", "--head-widths", 64, "--cases", "whole")
    finished = run("-c", WITH_HUGE_TILES, "--json", tmp_path / "rows.json", *choice)
    assert finished.returncode == 1, finished.stderr[-3000:]
    assert "spills" in finished.stdout
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert any(row["spilled_bytes"] > 0 for row in rows)


def test_interpreted_kernels_are_not_reported_as_compiled(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(sys, "argv", ["compile_kernels.py"])
    with pytest.raises(SystemExit, match="unset it"):
        compile_kernels.main()
