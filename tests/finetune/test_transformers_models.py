"""Models of transformers are fine-tuned, kept, used and loaded as transformers does it."""

import re

import numpy
import pytest
import torch
import transformers
from transformers import AutoModelForSequenceClassification as Classifier

import tupelo
from finetune.models.kept_model import Predictor, as_pretrained, read_model
from finetune.sweep.references import read_model_refs
from finetune.training.encoding import encode_task
from finetune.training.targets import Classes
from finetune.training.train import FineTuning, build_task_model
from pretrain.config.errors import ConfigError
from pretrain.convert.pretrained import load_pretrained
from tests.finetune.fine_tuning_case import numbers, protocol
from tests.finetune.models import kept_case as case

CPU = torch.device("cpu")
# What is new in a classifier, and what of the encoder comes after its blocks.
FAMILIES = {
    "roberta": (("classifier.",), "nothing"),
    "modernbert": (("head.", "classifier."), "model.final_norm."),
    "distilbert": (("pre_classifier.", "classifier."), "nothing"),
    "bert": (("classifier.", "bert.pooler."), "bert.pooler."),  # saved as an encoder alone
}


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    kind, place = request.param, tmp_path_factory.mktemp("models") / request.param
    auto = transformers.AutoModel if kind == "bert" else transformers.AutoModelForMaskedLM
    return case.save_transformers_model(place, kind, auto=auto)


@pytest.fixture(scope="module")
def kept(folder, tmp_path_factory):
    """A classifier of texts, in the folder of its trial."""
    pretrained = load_pretrained(folder)._replace(sequence_length=case.LENGTH)
    return case.fine_tuned(tmp_path_factory.mktemp("kept"), pretrained=pretrained)


def fine_tuning(pretrained, rules, *, takes_weights=True):
    rows = encode_task(case.task_data(), pretrained.text_encoder, sequence_length=case.LENGTH)
    model = build_task_model(
        pretrained, rules, target=Classes(3), seed=0, takes_weights=takes_weights
    )
    return FineTuning(model, rows, rules, learning_rate=0.01, seed=0, device=CPU)


def test_steps_are_those_of_a_plain_loop_with_a_rate_for_each_layer(folder):
    still = {"dropout": 0.0, "attention_dropout": 0.0, "max_gradient_norm": 0.1}
    rules = protocol(**still, weight_decay=0.5, layer_decay=0.5, epsilon=1e-3)
    run = fine_tuning(load_pretrained(folder), rules)
    plain, report = Classifier.from_pretrained(folder, num_labels=3, output_loading_info=True)
    for module in plain.modules():  # dropout of any name
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    head, after = FAMILIES[folder.name]
    ours, groups = run.model.whole.state_dict(), []
    # A BertModel has a pooler, which is left out: BERT has none for masked words.
    new = {name for name in ours if name.startswith("bert.pooler.")} | report["missing_keys"]
    assert all(name.startswith(head) for name in new)
    plain.load_state_dict({name: ours[name] for name in new}, strict=False)
    for name, weight in plain.named_parameters():
        block = re.search(r"\.layers?\.(\d)\.", name)
        factor = 0.5 if name.startswith(after) else 1.0 if name.startswith(head) else 1 / 16
        factor = 0.5 ** (3 - int(block[1])) if block else factor
        decay = 0.5 if weight.ndim > 1 else 0.0
        groups.append({"params": [weight], "factor": factor, "weight_decay": decay})
    optimizer = torch.optim.AdamW(groups, betas=rules.betas, eps=rules.epsilon)
    batch, labels = run.data.train.rows.batch(numbers(0, 1, 2, 3)), run.data.train.labels[:4]
    mask = torch.arange(batch.ids_BS.shape[1]) < batch.lengths_B[:, None]
    for place in range(2):
        found = run.train_step(batch, labels, epoch=0, place=place)
        loss = plain.train()(batch.ids_BS, mask.long(), labels=torch.tensor(labels)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        for group in optimizer.param_groups:
            group["lr"] = run.learning_rate(0, place) * group["factor"]
        optimizer.step()
        assert found.item() == pytest.approx(loss.item(), abs=1e-6)
    for name, weight in plain.named_parameters():
        found = run.model.get_parameter(f"whole.{name}")
        torch.testing.assert_close(found, weight, atol=1e-6, rtol=0, msg=name)


def test_a_kept_model_predicts_as_its_trial_and_a_pipeline_in_any_batch(kept):
    outputs, texts = case.outputs_in_training(kept), case.development_texts(kept)
    predictor = Predictor(read_model(kept.folder), CPU)
    assert numpy.array_equal(predictor.outputs(texts), outputs)
    alone = numpy.concatenate([predictor.outputs([text]) for text in texts])
    assert numpy.ptp(outputs, axis=0).min() > 1e-3  # there is something to compare
    assert numpy.abs(alone - outputs).max() < 1e-5  # fp32, other numbers of keys
    predict = transformers.pipeline("text-classification", model=str(kept.folder))
    found = predict([text for (text,) in texts], truncation=True, top_k=None)
    for shares, one in zip(torch.tensor(outputs).softmax(-1).tolist(), found, strict=True):
        expected = dict(zip(kept.data.task.labels, shares, strict=True))
        assert {each["label"]: each["score"] for each in one} == pytest.approx(expected, abs=1e-6)


def test_another_task_begins_with_the_encoder_and_a_new_head(kept):
    start = fine_tuning(as_pretrained(kept.folder), protocol()).model.whole.state_dict()
    fresh = fine_tuning(kept.pretrained, protocol(), takes_weights=False).model.whole.state_dict()
    new, _ = FAMILIES[kept.pretrained.model.transformers["model_type"]]
    for name, weight in kept.run.model.whole.state_dict().items():
        assert torch.equal(start[name], fresh[name] if name.startswith(new) else weight), name


def test_a_regression_predicts_in_the_units_of_the_labels_also_when_saved_again(kept, tmp_path):
    of_pairs = {"regression": True, "pair": True, "start": 5e3, "pretrained": kept.pretrained}
    numbers_of = case.fine_tuned(tmp_path, **of_pairs)
    expected, texts = case.outputs_in_training(numbers_of), case.development_texts(numbers_of)
    found = Predictor(read_model(numbers_of.folder), CPU).outputs(texts)
    assert found == pytest.approx(expected, rel=1e-6)  # fp32
    for kind in (Classifier, transformers.AutoTokenizer):
        kind.from_pretrained(numbers_of.folder).save_pretrained(tmp_path / "again")
    found = Predictor(read_model(tmp_path / "again"), CPU).outputs(texts)
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_last_layer_computes_in_fp32_where_the_encoder_computes_in_bf16(kept):
    run = fine_tuning(kept.pretrained, protocol(precision="bf16"))
    outputs = run.logits(run.data.train)
    assert (torch.from_numpy(outputs).bfloat16().float().numpy() != outputs).mean() > 0.9
    exact = fine_tuning(kept.pretrained, protocol()).logits(run.data.train)
    assert 0 < numpy.abs(outputs - exact).max() < 0.1 * numpy.abs(exact).max()


def test_a_loaded_encoder_has_the_states_of_transformers(folder):
    loaded, texts = tupelo.load(folder), ["The parser reads a file.", "names"]
    batch, theirs = loaded.encode(texts), transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        states = theirs(batch.ids, batch.mask.long()).last_hidden_state * batch.mask[..., None]
    torch.testing.assert_close(loaded.hidden_states(texts), states, atol=1e-5, rtol=1e-5)
    if folder.name == "bert":
        with pytest.raises(ConfigError, match="is an encoder alone, which predicts no words"):
            loaded.fill_mask("a [MASK]")
    else:
        assert len(loaded.fill_mask("a [MASK] of names", top=3)[0]) == 3


def test_attached_positions_are_refused_before_anything_runs(kept, monkeypatch):
    model = kept.pretrained.model.model_copy(update={"positions": "tupe-r"})
    other = kept.pretrained._replace(model=model)
    monkeypatch.setattr("pretrain.convert.pretrained.load_pretrained", lambda *_, **__: other)
    with pytest.raises(ConfigError, match="positions='tupe-r' attached cannot be fine-tuned here"):
        read_model_refs(["a"], ["newest"], from_scratch=False)
