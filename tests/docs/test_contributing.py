"""The additions that CONTRIBUTING.md describes work as they stand there."""

import pytest

from tests.docs.contributed import BLOCKS
from tests.forked_command import run_module
from tests.pretrain.conftest import command, lines, shards

__all__ = ["command", "shards"]  # fixtures
TRAINED = {
    "pretrain/model/positions": ("--model.positions", "kerple"),
    "pretrain/schedules/layer_drop": ("--layer_drop.schedule", "cosine"),
    "pretrain/engine/optimizers": ("--optimizer.kind", "rmsprop"),
    "pretrain/model/objectives/catalog": ("--objective", "smoothed"),
}
SUITE = "finetune/tasks/catalog"


def run(file, package, *words):
    status, output, errors = run_module("tests.docs.contributed", [file, package, *words])
    assert status == 0, errors[-3000:]
    return output


def test_every_addition_is_tried():
    assert set(BLOCKS) == {*TRAINED, SUITE}


@pytest.mark.parametrize("file", TRAINED)
def test_what_is_added_trains_and_resumes(command, tmp_path, file):
    folder, words = tmp_path / "run", command.words("--engine.ds_config", "zero2_fp32")
    run(file, "pretrain", *words, *TRAINED[file], "--run-folder", folder)
    evaluations = lines(folder, "evals.jsonl")
    assert evaluations[-1]["step"] == 20
    (folder / "result.json").unlink()
    for checkpoint in (folder / "checkpoints").glob("step_*20"):
        checkpoint.rename(tmp_path / "later")
    run(file, "pretrain", "train", folder, "--resume")
    assert lines(folder, "evals.jsonl") == evaluations


def test_a_suite_that_is_added_is_listed():
    assert "BoolQ" in run(SUITE, "finetune", "tasks")
