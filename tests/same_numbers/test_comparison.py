import json

import pytest
import torch
from safetensors.torch import save_file

from .comparison import CLOCK, differences

LINES = [{"step": step, "loss": 1 / step, "training_seconds": step} for step in (1, 2, 3)]


def write(folder, lines=LINES, moments=(0.1, 2.0)):
    """Write a run of three steps, with a checkpoint of one state tensor."""
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    save_file({"exp_avg/w": torch.tensor(moments)}, folder / "part.safetensors")
    return folder


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ({}, None),
        ({"lines": [{**line, "training_seconds": 9} for line in LINES]}, None),
        (
            {"lines": [*LINES[:2], {**LINES[2], "loss": 0.5}]},
            f"metrics.jsonl, step 3 loss: {1 / 3!r} became 0.5",
        ),
        (
            {"lines": [*LINES[:2], {**LINES[2], "loss_scale": 1.0}]},
            "metrics.jsonl, step 3 loss_scale: 'nothing' became 1.0",
        ),
        ({"lines": [*LINES, LINES[2]]}, "metrics.jsonl, steps: [1, 2, 3] became [1, 2, 3, 3]"),
        ({"lines": LINES[:2]}, "metrics.jsonl, steps: [1, 2, 3] became [1, 2]"),
        (
            {"moments": (0.1, 2.0 + 2**-22)},
            "part.safetensors, exp_avg/w: element 1: 2.0 became 2.000000238418579 (1 of 2 differ)",
        ),
    ],
    ids=["equal", "clock", "altered", "added", "repeated", "missing", "last bit"],
)
def test_a_difference_of_one_bit_is_named_with_file_step_and_both_values(tmp_path, run, expected):
    old, new = write(tmp_path / "old"), write(tmp_path / "new", **run)
    found = differences(old, new, ("*.jsonl", "*.safetensors"), CLOCK)
    assert found[:1] == ([expected] if expected else [])
    assert len(differences(old, tmp_path / "absent", ("*.safetensors",), CLOCK)) == 1
