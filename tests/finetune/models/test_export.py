"""Exports of fine-tuned models compute what the trainer computes, or are not written."""

import itertools
import re

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from finetune.__main__ import main
from finetune.models import export as export_module
from finetune.models.export import MOST_ROUNDING, export_classifier
from finetune.models.kept_model import read_model
from finetune.models.predictor import Predictor
from pretrain.config.errors import ConfigError
from pretrain.convert.exports.in_transformers import TOLERANCE, quiet
from pretrain.convert.pretrained import load_pretrained
from tests.finetune.models.kept_case import (
    development_texts,
    fine_tuned,
    outputs_in_training,
)

STOCK = {"positions": "bert-a", "norm": "post"}
GLUE = "nyu-mll/glue"
VARIANTS = [STOCK, {"positions": "tupe-r", "norm": "post"}, {"positions": "shaw", "norm": "pre"}]


def loaded(folder):
    with quiet():
        model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
        return model.eval(), AutoTokenizer.from_pretrained(folder, trust_remote_code=True)


def theirs(folder, texts):
    """Return the outputs of the exported model for texts that its own tokenizer reads."""
    model, tokenizer = loaded(folder)
    batch = tokenizer(
        *map(list, zip(*texts, strict=True)), padding=True, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        return model(**batch).logits.numpy()


@pytest.mark.parametrize(
    ("variant", "regression", "pair"),
    [*itertools.product(VARIANTS[:2], (False, True), (True,)), (VARIANTS[2], False, False)],
)
def test_outputs_of_the_export_are_those_of_the_trainer(tmp_path, variant, regression, pair):
    case = fine_tuned(tmp_path / "trial", regression=regression, pair=pair, **variant)
    export_classifier(read_model(case.folder), tmp_path / "exported")
    found = theirs(tmp_path / "exported", development_texts(case))
    expected = outputs_in_training(case)
    scale = read_model(case.folder).record.spread
    assert numpy.ptp(expected) > 0.01 * scale  # there is something to compare
    assert numpy.abs(found.squeeze() - expected).max() <= 1e-5 * scale


def test_numbers_beside_a_large_mean_are_exported_while_fp32_holds_them(tmp_path):
    case = fine_tuned(tmp_path / "trial", regression=True, start=5e8, **VARIANTS[1])
    kept = read_model(case.folder)
    check = export_classifier(kept, tmp_path / "exported")
    assert TOLERANCE < check.largest_difference < MOST_ROUNDING
    found = theirs(tmp_path / "exported", development_texts(case)).squeeze()
    assert numpy.abs(found - outputs_in_training(case)).max() <= 64  # two steps of fp32
    case = fine_tuned(tmp_path / "further", regression=True, start=5e10, **STOCK)
    with pytest.raises(ConfigError, match=r"numbers around 5.*e\+10 .*subtract a constant"):
        export_classifier(read_model(case.folder), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_a_pipeline_has_the_labels_and_probabilities_of_predict(tmp_path):
    case = fine_tuned(tmp_path / "trial", pair=True, **VARIANTS[1])
    kept = read_model(case.folder)
    export_classifier(kept, tmp_path / "exported")
    with quiet():
        classify = pipeline(
            "text-classification", model=str(tmp_path / "exported"), trust_remote_code=True
        )
    texts = development_texts(case)
    pairs = [{"text": one, "text_pair": two} for one, two in texts]
    logits = Predictor(kept, torch.device("cpu")).outputs(texts)
    for row, found in zip(logits, classify(pairs, truncation=True, top_k=None), strict=True):
        shares = torch.tensor(row).softmax(-1)
        by_label = dict(zip(case.data.task.labels, shares.tolist(), strict=True))
        assert found[0]["label"] == max(by_label, key=by_label.get)
        assert {one["label"]: one["score"] for one in found} == pytest.approx(by_label, abs=1e-5)


def test_a_pipeline_of_a_regression_has_the_numbers_of_predict(numbers, tmp_path):
    export_classifier(read_model(numbers.folder), tmp_path / "exported")
    with quiet():
        predict = pipeline(
            "text-classification", model=str(tmp_path / "exported"), trust_remote_code=True
        )
    pairs = [{"text": one, "text_pair": two} for one, two in development_texts(numbers)]
    found = predict(pairs, truncation=True)
    assert {one["label"] for one in found} == {"size"}
    expected = outputs_in_training(numbers)
    assert [one["score"] for one in found] == pytest.approx(expected, rel=1e-5)


def test_the_stock_variant_is_a_bert_of_transformers_without_code(tmp_path):
    case = fine_tuned(tmp_path / "trial", **STOCK)
    export_classifier(read_model(case.folder), tmp_path / "exported")
    assert not list((tmp_path / "exported").glob("*.py"))
    with quiet():
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "exported")
    assert type(model).__name__ == "BertForSequenceClassification"
    assert model.config.id2label == {0: "few", 1: "more", 2: "many, many"}
    assert model.config.problem_type == "single_label_classification"
    # As fine-tuning goes on, with the loss of its problem.
    batch = {"input_ids": torch.tensor([[2, 9, 10, 3]]), "labels": torch.tensor([1])}
    output = model.eval()(**batch)
    expected = -output.logits.log_softmax(-1)[0, 1]
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-6)


def test_the_example_of_the_card_runs_and_its_header_has_the_scores(
    numbers, tmp_path, capsys, monkeypatch
):
    from huggingface_hub import ModelCard

    main(["export", str(numbers.folder), "--to", str(tmp_path / "mine")])
    printed = capsys.readouterr().out
    assert f"exported tiny step 7 on letters to {tmp_path / 'mine'}: with its own code" in printed
    text = (tmp_path / "mine/README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    monkeypatch.chdir(tmp_path)
    with quiet():
        exec(code, {})
    assert "'label': 'size'" in capsys.readouterr().out
    card = ModelCard.load(tmp_path / "mine/README.md")
    assert card.data.pipeline_tag == "text-classification"
    results = {one.metric_type: one.metric_value for one in card.data.eval_results}
    scores = numbers.result.scores["dev"]
    assert results == {"pearsonr": scores["pearson"], "spearmanr": scores["spearman"]}


@pytest.mark.parametrize(
    ("known", "words", "expected", "data"),
    [
        ({"task": "STS-B"}, [], ("other", "that-of-the-training-data", [GLUE]), GLUE),
        # The name of the user's file is in the table only: the header names data sets of the Hub.
        ({"file": "reviews.csv"}, ["apache-2.0"], ("apache-2.0", None, None), "reviews.csv"),
        ({"file": ""}, ["cc-by-4.0"], ("cc-by-4.0", None, None), ""),
    ],
)
def test_the_card_has_data_set_and_licence(classes, tmp_path, known, words, expected, data):
    from huggingface_hub import ModelCard

    kept = read_model(classes.folder)
    kept = kept._replace(record=kept.record.model_copy(update=known))
    export_classifier(kept, tmp_path / "mine", *words)
    found = ModelCard.load(tmp_path / "mine/README.md")
    assert (found.data.license, found.data.get("license_name"), found.data.datasets) == expected
    assert ("| training data " in found.text) == bool(data) and data in found.text


def test_what_is_no_licence_of_the_hub_is_refused(classes, tmp_path):
    words = ["export", str(classes.folder), "--to", str(tmp_path / "mine"), "--licence", "Mine 2"]
    with pytest.raises(ConfigError, match="--licence Mine 2: give its name on the Hub"):
        main(words)
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_differs_from_the_trainer_is_not_written(classes, tmp_path, monkeypatch):
    write = export_module.write_classifier

    def write_wrongly(folder, kept):
        write(folder, kept)
        weights = load_file(folder / "model.safetensors")
        (name,) = [
            name for name in weights if name.endswith("output.bias") and "." not in name[:-12]
        ]
        weights[name][0] += 0.01
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(export_module, "write_classifier", write_wrongly)
    with pytest.raises(ConfigError, match="largest difference is 0.01, more than 1e-04; nothing"):
        export_classifier(read_model(classes.folder), tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


def test_an_export_is_refused_as_the_start_of_pre_training_in_one_line(classes, tmp_path):
    export_classifier(read_model(classes.folder), tmp_path / "mine")
    with pytest.raises(ConfigError, match="mine/config.json has model_type='tupelo'") as caught:
        load_pretrained(tmp_path / "mine")
    assert "\n" not in str(caught.value)
