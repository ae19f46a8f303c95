"""A kept model is read back whole, here and by transformers, and refused when it is damaged."""

import json
import re
import shutil

import numpy
import pytest
import torch
from huggingface_hub import ModelCard
from scipy.special import softmax
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from finetune.models.kept_model import Predictor, as_pretrained, read_model
from finetune.results.model_folder import PARTIAL, REMOVED, has_model, kept_folder, remove_model
from finetune.training.targets import Classes
from finetune.training.train import build_task_model
from pretrain.config.errors import ConfigError
from pretrain.convert.exports.hf_format import CONFIG_FILE
from pretrain.convert.exports.in_transformers import quiet
from pretrain.convert.pretrained import load_pretrained
from tests.finetune.fine_tuning_case import protocol
from tests.finetune.models.kept_case import development_texts, outputs_in_training

CPU = torch.device("cpu")


@pytest.mark.parametrize("case", ["classes", "stock"])
def test_weights_and_outputs_are_read_back_from_a_copy_bit_for_bit(case, tmp_path, request):
    case = request.getfixturevalue(case)
    kept = read_model(shutil.copytree(case.folder, tmp_path / "copy"))
    found = Predictor(kept, CPU).outputs(development_texts(case))
    torch.testing.assert_close(kept.weights, dict(case.run.model.state_dict()), rtol=0, atol=0)
    assert numpy.array_equal(found, outputs_in_training(case))
    assert kept.record.labels == case.data.task.labels
    assert kept.record.texts == case.data.task.texts
    assert case.result.source not in (case.folder / CONFIG_FILE).read_text()
    config = json.loads((tmp_path / "copy" / CONFIG_FILE).read_text())  # its labels renamed
    config["id2label"] = {number: name.upper() for number, name in config["id2label"].items()}
    (tmp_path / "copy" / CONFIG_FILE).write_text(json.dumps(config))
    renamed = tuple(map(str.upper, case.data.task.labels))
    assert read_model(tmp_path / "copy").record.labels == renamed


@pytest.mark.parametrize("name", ["classes", "numbers", "stock", "stock_numbers"])
def test_a_pipeline_has_the_labels_and_probabilities_or_the_numbers_of_the_trainer(name, request):
    case = request.getfixturevalue(name)
    assert any(case.folder.glob("*.py")) == (not name.startswith("stock"))
    with quiet():
        predict = pipeline("text-classification", model=str(case.folder), trust_remote_code=True)
    texts = [dict(zip(("text", "text_pair"), one, strict=False)) for one in development_texts(case)]
    labels, expected = case.data.task.labels or ("size",), outputs_in_training(case)
    scale = 1.0 if case.data.task.labels else case.run.data.target.spread
    assert numpy.ptp(expected) > 0.01 * scale  # there is something to compare
    if case.data.task.labels:
        expected = softmax(expected, axis=1)
    for found, known in zip(predict(texts, truncation=True, top_k=None), expected, strict=True):
        shares = {one["label"]: one["score"] for one in numpy.atleast_1d(found)}
        # Beside a large mean fp32 rounds to its 24 bits.
        assert shares == pytest.approx(
            dict(zip(labels, numpy.atleast_1d(known), strict=True)), rel=1e-6, abs=1e-5 * scale
        )


@pytest.mark.parametrize("case", ["numbers", "stock"])
def test_what_transformers_has_trained_further_and_saved_again_predicts(case, tmp_path, request):
    case = request.getfixturevalue(case)
    folder = shutil.copytree(case.folder, tmp_path / "model")
    with quiet(), torch.no_grad():
        for kind in (AutoModelForSequenceClassification, AutoTokenizer):
            loaded = kind.from_pretrained(folder, trust_remote_code=True)
            for name, weight in getattr(loaded, "named_parameters", list)():
                is_last = name.startswith(("classifier.output.", "classifier.weight"))
                weight *= 2 if is_last or name == "classifier.bias" else 1
            loaded.save_pretrained(folder)
    assert "token_type_ids" not in loaded("Segments", "which no model here has learned")
    found = Predictor(read_model(folder), CPU).outputs(development_texts(case))
    assert found == pytest.approx(2 * outputs_in_training(case), rel=1e-5, abs=1e-5)


def test_the_example_of_the_card_runs_and_the_card_has_scores_and_counts(
    numbers, classes, capsys, monkeypatch
):
    text = (numbers.folder / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    monkeypatch.chdir(numbers.folder.parent)
    with quiet():
        exec(code, {})
    assert "'label': 'size'" in capsys.readouterr().out
    card = ModelCard.load(numbers.folder / "README.md")
    assert card.data.pipeline_tag == "text-classification" and card.data.license == "other"
    score = 100 * numbers.result.scores["dev"]["pearson"]
    assert re.search(rf"letters, pearson +\| `{score:.1f}` ", card.text)
    assert "`train 20, dev 12`" in card.text  # 40 rows: both orders of 20 pairs
    few, more, many = (sum(one.label == n for one in classes.data.train) for n in range(3))
    counts = f"`few {few}, more {more}, many, many {many}`"
    assert counts in (classes.folder / "README.md").read_text()


def test_a_kept_model_is_refused_as_the_start_of_pre_training_in_one_line(classes):
    with pytest.raises(ConfigError, match="holds no pre-trained model; give a run") as caught:
        load_pretrained(classes.folder)
    assert "\n" not in str(caught.value)


def test_the_start_of_another_task_is_the_encoder_with_a_new_head(classes):
    start = as_pretrained(classes.folder)
    assert (start.name, start.step) == ("tiny step 7 after letters", None)
    assert start.sequence_length == classes.pretrained.sequence_length
    model, fresh = (
        build_task_model(each, protocol(), target=Classes(2), seed=3).state_dict()
        for each in (start, classes.pretrained)
    )
    for name, tensor in classes.run.model.state_dict().items():
        assert not name.startswith("encoder.") or torch.equal(model[name], tensor)
    for name in ("classifier.dense.weight", "classifier.output.weight"):
        assert torch.equal(model[name], fresh[name])


def other_vocabulary(content):
    tokenizer = json.loads(content)
    words = tokenizer["model"]["vocab"]
    last = max(words, key=words.get)
    words[f"{last}{last}"] = words.pop(last)
    return json.dumps(tokenizer).encode()


def replaced(old, new):
    return lambda content: content.replace(old, new)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.safetensors", lambda content: content[:-9], "model.safetensors is damaged"),
        ("tokenizer.json", other_vocabulary, "is not the tokenizer that this model was trained"),
        (CONFIG_FILE, lambda content: content[:-20], f"{CONFIG_FILE}"),
        (CONFIG_FILE, replaced(b'"sequence_length": 24', b'"sequence_length": 1'), "damaged"),
        (CONFIG_FILE, replaced(b'"more",', b'"few",'), "labels: two or more, each of them once"),
        (
            CONFIG_FILE,
            replaced(b'"width": 16', b'"width": 32'),
            "model.safetensors: classifier.dense.bias is .16,. instead of .32,.",
        ),
    ],
)
def test_damage_is_one_line_that_names_the_file(classes, tmp_path, name, change, message):
    copy = shutil.copytree(classes.folder, tmp_path / "copy")
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(change(content))
    with pytest.raises(ConfigError, match=message) as caught:
        read_model(copy)
    assert str(copy) in str(caught.value) and "\n" not in str(caught.value)


def test_the_only_model_below_a_folder_is_found_and_of_several_one_must_be_named(classes, tmp_path):
    sweep = classes.folder.parents[2]
    for place in (sweep, *classes.folder.parents[:2], classes.folder):
        assert kept_folder(place) == classes.folder
    shutil.copytree(sweep, tmp_path / "sweep")
    other = tmp_path / "sweep/letters/tiny-0.01-seed3"
    shutil.copytree(classes.folder.parent, other)
    with pytest.raises(ConfigError, match="holds 2 fine-tuned models; name the one .*-0.01-seed"):
        kept_folder(tmp_path)
    absent = "absent does not exist; one is kept by: .*run RUN --keep best"
    with pytest.raises(ConfigError, match=absent):
        kept_folder(tmp_path / "absent")


def test_a_model_is_removed_with_what_killed_processes_left_of_it(classes, tmp_path):
    trial = shutil.copytree(classes.folder.parent, tmp_path / "trial")
    for suffix in (PARTIAL, REMOVED):
        shutil.copytree(classes.folder, (trial / "model").with_suffix(suffix))
    assert has_model(trial)
    remove_model(trial)
    assert not list(trial.iterdir())
    remove_model(trial)
