"""The additions that CONTRIBUTING.md describes work as they stand there."""

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


def run(files, package, *words):
    words = [",".join(files), package, *words]
    status, output, errors = run_module("tests.docs.contributed", words)
    assert status == 0, errors[-3000:]
    return output


def test_every_addition_is_tried():
    assert set(BLOCKS) == {*TRAINED, SUITE}


def test_what_is_added_trains_and_resumes(command, tmp_path):
    folder, added = tmp_path / "run", [word for words in TRAINED.values() for word in words]
    words = command.words("--engine.ds_config", "zero2_fp32", *added, "--run-folder", folder)
    run(TRAINED, "pretrain", *words)
    evaluations = lines(folder, "evals.jsonl")
    assert evaluations[-1]["step"] == 20
    (folder / "result.json").unlink()
    for checkpoint in (folder / "checkpoints").glob("step_*20"):
        checkpoint.rename(tmp_path / "later")
    run(TRAINED, "pretrain", "train", folder, "--resume")
    assert lines(folder, "evals.jsonl") == evaluations


def test_a_suite_that_is_added_has_an_option():
    assert "--klej" in run([SUITE], "tupelo", "finetune", "run", "--help")
