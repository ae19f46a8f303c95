import torch
from safetensors.torch import save_file

from .comparison import differences


def test_a_difference_of_one_bit_is_named_with_file_step_and_both_values(tmp_path):
    for side, loss, weight in (("old", 0.1 + 0.2, 1.5), ("new", 0.3, 1.5 + 2**-23)):
        (tmp_path / side / "step_1").mkdir(parents=True)
        (tmp_path / side / "metrics.jsonl").write_text(f'{{"step": 3, "loss": {loss!r}}}\n')
        save_file({"a": torch.tensor([0.5, weight])}, tmp_path / side / "step_1/p.safetensors")
    assert differences(tmp_path / "old", tmp_path / "old") == []
    assert differences(tmp_path / "old", tmp_path / "new") == [
        "metrics.jsonl, step 3 loss: 0.30000000000000004 became 0.3",
        "step_1/p.safetensors, a: element 1: 1.5 became 1.5000001192092896 (1 of 2 differ)",
    ]
