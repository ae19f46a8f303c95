"""The comparison finds a difference anywhere in a run."""

import json
import shutil

import pytest
import torch

from pretrain.checkpoint.format import Content, EngineCounters, Piece, complete, write_part

from .comparison import differences


@pytest.fixture
def runs(tmp_path):
    """Two equal runs of 4 steps, with a last checkpoint of one weight."""
    return tmp_path, shutil.copytree(write_run(tmp_path / "run"), tmp_path / "reference")


def write_run(folder, weights=(1.0, 2.0), moments=(0.1, 0.2)):
    partial = folder / "checkpoints" / "step_00000004.partial"
    partial.mkdir(parents=True)
    tensors = {
        "weight/w": torch.tensor(weights),
        "exp_avg/w": torch.tensor(moments),
        "exp_avg_sq/w": torch.tensor(moments),
    }
    parts = write_part(partial, 0, tensors, {"w": Piece(0, 2)})
    content = Content(
        step=4,
        world_size=1,
        shapes={"w": [2]},
        optimizer_state={"w": ["exp_avg", "exp_avg_sq"]},
        parts=parts,
        engine=EngineCounters(),
        progress={},
    )
    complete(partial, content)
    (folder / "run.json").write_text("{}")
    metrics = [{"step": step, "loss": 1 / step, "training_seconds": step} for step in (1, 2, 3, 4)]
    write_lines(folder / "metrics.jsonl", metrics)
    write_lines(folder / "evals.jsonl", [{"step": 4, "loss": 0.3}])
    (folder / "result.json").write_text(json.dumps({"step": 4, "training_seconds": 9.0}))
    return folder


def write_lines(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def changed_lines(folder, change):
    file = folder / "metrics.jsonl"
    write_lines(file, change([json.loads(line) for line in file.read_text().splitlines()]))


def test_equal_runs_do_not_differ(runs):
    folder, reference = runs
    assert differences(folder / "run", reference) == []


def test_the_clock_does_not_count(runs):
    folder, reference = runs
    changed_lines(folder / "run", lambda lines: [{**line, "training_seconds": 0} for line in lines])
    assert differences(folder / "run", reference) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda lines: [*lines[:2], {**lines[2], "loss": 0.5}, lines[3]],
            f"metrics.jsonl, step 3: loss 0.5 instead of {1 / 3!r}",
        ),
        (
            lambda lines: [*lines[:2], {**lines[2], "loss_scale": 1.0}, lines[3]],
            "metrics.jsonl, step 3: loss_scale 1.0 instead of None",
        ),
        (
            lambda lines: [*lines[:3], *lines[2:]],
            "metrics.jsonl: steps [1, 2, 3, 3, 4] instead of [1, 2, 3, 4]",
        ),
        (lambda lines: lines[:3], "metrics.jsonl: steps [1, 2, 3] instead of [1, 2, 3, 4]"),
    ],
    ids=["altered", "added", "repeated", "missing"],
)
def test_a_line_that_is_not_the_same_is_reported(runs, change, expected):
    folder, reference = runs
    changed_lines(folder / "run", change)
    assert differences(folder / "run", reference) == [expected]


def test_another_result_is_reported(runs):
    folder, reference = runs
    (folder / "run/result.json").write_text('{"step": 5}')
    assert differences(folder / "run", reference) == ["result.json: step 5 instead of 4"]
    (folder / "run/result.json").unlink()
    assert differences(folder / "run", reference) == ["there is no result.json"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"weights": (1.0, 2.0 + 2**-22)}, "weights differ: w"),
        ({"moments": (0.1, 0.3)}, "Adam's moments differ"),
    ],
)
def test_a_last_bit_of_the_weights_and_moments_is_reported(runs, values, expected):
    folder, reference = runs
    other = write_run(folder / "other", **values)
    assert differences(other, reference) == [expected]
