"""Programs that people use with a BERT take an export: the extra "clients" of pyproject.toml."""

import contextlib
import io

import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from tests.pretrain.convert.exports.loading import loaded, rows

pytestmark = pytest.mark.slow("needs the extra clients, which run_tests.sh --all installs")
KINDS = ("tupe-r", "bert-ad", "shaw", "rope")  # each with terms of another kind


def of_extra(name):
    """Return a package of the extra, or skip the test."""
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install -e '.[clients]'")


ANSWERS = {"start_positions": torch.tensor([1, 2, 3]), "end_positions": torch.tensor([3, 4, 5])}


@pytest.mark.parametrize(
    ("task", "auto_class", "head", "labels"),
    [
        ("SEQ_CLS", AutoModelForSequenceClassification, "classifier", torch.tensor([0, 1, 0])),
        ("TOKEN_CLS", AutoModelForTokenClassification, "classifier", rows()[0] % 2),
        ("QUESTION_ANS", AutoModelForQuestionAnswering, "qa_outputs", ANSWERS),
    ],
)
def test_adapters_of_peft_are_trained_with_the_head_and_loaded(
    exported, tmp_path, task, auto_class, head, labels
):
    peft = of_extra("peft")
    ids, mask = rows()
    settings = peft.LoraConfig(task_type=task, r=2, target_modules=["query_key_value"])
    model = peft.get_peft_model(loaded(auto_class, exported("tupe-r")), settings).train()
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert all("lora_" in name or head in name for name in trained)
    assert any(head in name for name in trained)
    targets = labels if isinstance(labels, dict) else {"labels": labels}
    optimizer = torch.optim.SGD([w for w in model.parameters() if w.requires_grad], lr=0.1)
    losses = []
    for _ in range(8):
        loss = model.eval()(input_ids=ids, attention_mask=mask, **targets).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(
        loaded(auto_class, exported("tupe-r")), tmp_path / "adapter"
    )
    with torch.no_grad():
        first, second = (each.eval()(input_ids=ids)[0] for each in (model, again))
        torch.testing.assert_close(second, first)
        merged = model.merge_and_unload()(input_ids=ids)[0]
        torch.testing.assert_close(merged, first, rtol=1e-4, atol=1e-4)


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
    of_extra("onnxscript")
    onnxruntime = of_extra("onnxruntime")
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
