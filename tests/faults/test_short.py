"""The fault suite in its short version, as anyone can run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_command import environment

ROOT = Path(__file__).parents[2]


def run_module(module, *words):
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, words)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.ranks
def test_a_few_faults_of_each_kind_are_survived_without_losing_or_repeating_a_sample(tmp_path):
    found = run_module("tests.faults", "--short", "--json", tmp_path / "faults.json")
    assert found.returncode == 0, found.stdout + found.stderr[-3000:]
    outcomes = json.loads((tmp_path / "faults.json").read_text())["outcomes"]
    assert {outcome["kind"] for outcome in outcomes} >= {"kills", "writes", "checkpoints"}
    for outcome in outcomes:
        assert outcome["skipped"] or outcome["survived"] == outcome["tried"] > 0, outcome
        assert outcome["lost"] == outcome["repeated"] == 0, outcome


def test_an_unknown_kind_of_fault_is_named(tmp_path):
    found = run_module("tests.faults", "--only", "kills,flood", "--json", tmp_path / "none.json")
    assert found.returncode == 2 and "there is no flood; there are kills, writes" in found.stderr
