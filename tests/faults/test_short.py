"""The fault suite in its short version, as anyone can run it, and against a planted defect."""

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


@pytest.mark.slow("a check of the fault suite itself")
def test_a_run_that_reads_samples_again_is_not_survived(tmp_path):
    found = run_module("tests.faults.cases.planted", tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr[-3000:]
    outcomes = json.loads(found.stdout.splitlines()[-1])
    assert outcomes["sound"]["tried"] == outcomes["sound"]["survived"] == 1, outcomes["sound"]
    planted = outcomes["planted"]
    assert planted["tried"] == 1 and planted["survived"] == 0
    assert planted["lost"] == planted["repeated"] == 6  # a micro-batch
    assert "6 samples lost, 6 repeated" in planted["problems"][0]
    assert "metrics.jsonl, step " in planted["problems"][0]


def test_an_unknown_kind_of_fault_is_named(tmp_path):
    found = run_module("tests.faults", "--only", "kills,flood", "--json", tmp_path / "none.json")
    assert found.returncode == 2 and "there is no flood; there are kills, writes" in found.stderr
