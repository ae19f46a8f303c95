"""ONNX of an export: the extra "clients" of pyproject.toml."""

import contextlib
import io

import pytest
import torch
from transformers import AutoModelForMaskedLM

from tests.pretrain.convert.exports.loading import loaded, rows

pytestmark = pytest.mark.slow("needs the extra clients, which run_tests.sh --all installs")
KINDS = ("tupe-r", "rope")  # a bias, and other queries and keys


class Logits(torch.nn.Module):
    """A model without the names of its outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids, attention_mask).logits


NAMES = ["input_ids", "attention_mask"]


@pytest.mark.parametrize("positions", KINDS)
def test_onnx_computes_the_logits_of_any_number_of_rows(exported, tmp_path, positions):
    reason = "is not installed: pip install -e '.[clients]'"
    pytest.importorskip("onnxscript", reason=reason)
    onnxruntime = pytest.importorskip("onnxruntime", reason=reason)
    model = loaded(AutoModelForMaskedLM, exported(positions))
    file = str(tmp_path / "model.onnx")
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(
            Logits(model).eval(),
            rows(),
            file,
            input_names=NAMES,
            dynamic_shapes=dict.fromkeys(NAMES, {0: torch.export.Dim.DYNAMIC}),
            dynamo=True,
            verbose=False,
        )
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for number in (1, 5):
        ids, mask = rows(number)
        (found,) = session.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
        expected = model(ids, mask).logits.detach()
        assert found.shape == expected.shape
        is_word = mask.bool()
        torch.testing.assert_close(
            torch.tensor(found)[is_word], expected[is_word], rtol=1e-4, atol=1e-4
        )
