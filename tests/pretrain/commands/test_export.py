"""Exports compute what the trainer computes, load where people load models, or are not written."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers.normalizers import Replace
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

from data_prep.text.text_encoder import TextEncoder
from pretrain.config.errors import ConfigError
from pretrain.config.settings import ModelSettings
from pretrain.convert.exports.export import compare_logits, export, run_of
from pretrain.convert.exports.hf_format import CODE_FILES, CONFIG_FILE, write_pretrained
from pretrain.convert.exports.model_card import plain_text
from pretrain.convert.fill_mask import fill_mask
from pretrain.convert.model import token_logits
from pretrain.convert.pretrained import load_pretrained, restored_network
from pretrain.convert.weights import WEIGHTS_FILE
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.model.positions import POSITION_ENCODINGS
from tests.pretrain.conftest import lines

# Each encoding once, with what it alone reads, and both norms.
OWN = {
    "bert-ad": {"position_projection_bias": True},
    "rope": {"rotary_base": 50.0},
    "shaw": {"relative_clip": 3},
    "tupe-r": {"cls_reset": "reference", "position_projection_bias": True},
}
VARIANTS = [
    {"positions": name, "norm": "pre" if number % 2 else "post", **OWN.get(name, {})}
    for number, name in enumerate(POSITION_ENCODINGS)
]
STOCK = {"positions": "bert-a", "norm": "post"}
TUPE = {"positions": "tupe-r", "norm": "pre", "cls_reset": "reference"}


@pytest.fixture(scope="module")
def run(command, tmp_path_factory):
    return command.train(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def trained(run):
    return load_pretrained(run)


def of_variant(trained, **values):
    """Return a model of another variant with weights twenty times as large as new ones."""
    # Not the defaults, where they have an effect.
    shape = {} if values == STOCK else {"relative_buckets": 8, "relative_max_distance": 20}
    vocabulary = {"vocabulary_size": trained.text_encoder.record.vocabulary_size}
    model = ModelSettings(**trained.model.model_dump() | shape | vocabulary | values)
    torch.manual_seed(0)
    network = MaskedLanguageModel(model)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.4)
    weights = {name: tensor.detach() for name, tensor in network.state_dict().items()}
    return trained._replace(model=model, weights=weights, name="some model")


def padded_batch(pretrained):
    """Return ids, attention mask and lengths of three rows, one of them a pair."""
    words, special = pretrained.text_encoder, pretrained.text_encoder.special
    rows = [
        words.ids("abcd efgh", max_length=32),
        words.ids("abcdefgh ijkl mnop", "abc def", max_length=32),
        [special["cls"], *range(10, 40), special["sep"]],
    ]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int32)
    ids = torch.full((3, 32), words.pad)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    return ids, (torch.arange(32) < lengths[:, None]).long(), lengths


@pytest.mark.parametrize("values", VARIANTS, ids=lambda values: "-".join(map(str, values.values())))
@torch.no_grad()
def test_every_variant_is_exported_with_equal_logits_and_read_back(trained, tmp_path, values):
    pretrained = of_variant(trained, **values)
    write_pretrained(tmp_path, pretrained)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path, trust_remote_code=True)
    assert (type(model).__name__ == "BertForMaskedLM") == (values == STOCK)
    ids, attention_mask, lengths = padded_batch(pretrained)
    is_word = attention_mask.bool()
    ours = token_logits(pretrained)(ids, lengths)
    theirs = model.eval()(input_ids=ids, attention_mask=attention_mask).logits
    assert ours.std() > 0.5  # there is something to compare
    # fp32 through two blocks with large weights
    torch.testing.assert_close(theirs[is_word], ours[is_word], rtol=1e-4, atol=1e-4)
    without_mask = model(input_ids=ids[2:]).logits
    torch.testing.assert_close(without_mask, ours[2:], rtol=1e-4, atol=1e-4)
    back = load_pretrained(tmp_path)
    torch.testing.assert_close(back.weights, pretrained.weights, rtol=0, atol=0)
    assert back.model == pretrained.model
    place = str(tmp_path)
    assert back[3:] == ("some model", place, 20, 32, "masked_language_model", None)


def test_settings_of_other_encodings_may_be_newer_than_an_export(trained, tmp_path):
    pretrained = of_variant(trained, **TUPE)
    write_pretrained(tmp_path, pretrained)
    file = tmp_path / CONFIG_FILE
    content = json.loads(file.read_text())
    assert content.pop("relative_clip") == 16
    file.write_text(json.dumps(content))
    assert load_pretrained(tmp_path).model == pretrained.model


def test_losses_and_gradients_are_the_trainers(exported):
    pretrained, folder = exported
    theirs = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True)
    ids = padded_batch(pretrained)[0][2:]
    places = torch.tensor([3, 9, 20])
    labels = torch.full_like(ids, -100)
    labels[0, places] = ids[0, places]
    ours = restored_network(pretrained)
    loss = ours(ids, places, ids[0, places])
    their_loss = theirs.eval()(input_ids=ids, labels=labels).loss
    torch.testing.assert_close(their_loss, loss, rtol=1e-5, atol=1e-5)
    loss.backward()
    their_loss.backward()
    table = ours.encoder.token_embeddings.weight
    # fp32 sums over tokens and layers
    torch.testing.assert_close(
        theirs.get_input_embeddings().weight.grad, table.grad, rtol=1e-3, atol=1e-4
    )


@pytest.fixture(scope="module")
def stock_export(trained, run, tmp_path_factory):
    return exported_variant(trained, run, tmp_path_factory.mktemp("exports"), STOCK)


@pytest.fixture(scope="module")
def own_export(trained, run, tmp_path_factory):
    return exported_variant(trained, run, tmp_path_factory.mktemp("exports"), TUPE)


@pytest.fixture(params=["stock_export", "own_export"])
def exported(request):
    return request.getfixturevalue(request.param)


def exported_variant(trained, run, folder, values):
    pretrained = of_variant(trained, **values)
    export(pretrained, run, folder / "exported")
    return pretrained, folder / "exported"


def test_the_fill_mask_pipeline_guesses_what_we_guess(exported):
    pretrained, folder = exported
    text = "abcd [MASK] efgh ijkl"
    fill = pipeline("fill-mask", model=str(folder), trust_remote_code=True, device="cpu")
    theirs = [(guess["token_str"], guess["score"]) for guess in fill(text, top_k=4)]
    model, words = restored_network(pretrained), pretrained.text_encoder
    (ours,) = fill_mask(model, words, text, top=4, longest_row=pretrained.sequence_length)
    decode = words.tokenizer
    expected = [decode.decode([decode.token_to_id(token)]) for token, _ in ours]
    assert [token for token, _ in theirs] == expected
    assert [score for _, score in theirs] == pytest.approx([p for _, p in ours], rel=1e-3)


def test_the_loss_of_a_classifier_is_that_of_its_labels(own_export):
    pretrained, folder = own_export
    ids, attention_mask, lengths = padded_batch(pretrained)
    cls_BD = restored_network(pretrained).encoder(ids, lengths_B=lengths)[:, 0]
    several = {"num_labels": 2, "problem_type": "multi_label_classification"}
    shares = torch.tensor([[0, 1], [1, 1], [0, 0]]).float()
    for options, labels, loss in (
        ({"num_labels": 1}, torch.tensor([1.5, 0.0, -2.0]), nn.functional.mse_loss),
        ({"num_labels": 4}, torch.tensor([3, 0, 1]), nn.functional.cross_entropy),
        (several, shares, nn.functional.binary_cross_entropy_with_logits),
    ):
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, trust_remote_code=True, **options
        ).eval()
        output = model(ids, attention_mask, labels=labels)
        dense, last = model.classifier.dense, model.classifier.output
        expected = torch.tanh(cls_BD @ dense.weight.T + dense.bias) @ last.weight.T + last.bias
        torch.testing.assert_close(output.logits, expected, rtol=1e-4, atol=1e-4)
        target = expected.squeeze(-1) if options == {"num_labels": 1} else expected
        torch.testing.assert_close(output.loss, loss(target, labels), rtol=1e-4, atol=1e-4)


def test_weights_that_transformers_saves_in_parts_and_in_half_precision_are_read(
    exported, tmp_path
):
    pretrained, folder = exported
    model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True)
    model.bfloat16().save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "parts")
    parts = sorted((tmp_path / "parts").glob("*.safetensors"))
    assert len(parts) > 1 and not (tmp_path / "parts" / WEIGHTS_FILE).exists()
    back = load_pretrained(tmp_path / "parts")
    assert back.model == pretrained.model and back.step == 20
    for name, weight in pretrained.weights.items():
        assert torch.equal(back.weights[name], weight.bfloat16().float()), name
    parts[0].unlink()
    with pytest.raises(ConfigError, match="needs encoder"):
        load_pretrained(tmp_path / "parts")


def saved_again(folder, again, change):
    """Load a stock export, change the model, and save it again; return the model."""
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        change(model)
    model.save_pretrained(again)
    AutoTokenizer.from_pretrained(folder).save_pretrained(again)
    return model


def test_a_stock_export_that_was_made_another_model_is_refused(stock_export, tmp_path):
    gelu = {"hidden_act": "gelu_new"}
    saved_again(stock_export[1], tmp_path, lambda model: model.config.update(gelu))
    with pytest.raises(ConfigError, match="another model than was exported"):
        load_pretrained(tmp_path)


def test_token_types_in_half_precision_are_added_in_full(stock_export, tmp_path):
    name = "encoder.positions.position_embeddings.weight"
    model = saved_again(
        stock_export[1],
        tmp_path,
        lambda model: model.bfloat16().bert.embeddings.token_type_embeddings.weight.normal_(),
    )
    tables = model.bert.embeddings
    row = tables.token_type_embeddings.weight[0].double()
    expected = (tables.position_embeddings.weight.double() + row).float()
    assert torch.equal(load_pretrained(tmp_path).weights[name], expected)


ELSEWHERE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pretrain", "data_prep", "finetune"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import torch
from transformers import AutoModelForMaskedLM

exported, once, twice, ids, logits = sys.argv[1:]
for folder, again in ((exported, once), (once, twice)):
    model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True).eval()
    model.save_pretrained(again)
torch.save(model(torch.load(ids)).logits, logits)
"""


@pytest.mark.slow("imports transformers anew; test_layout says what the code may import")
def test_an_export_computes_the_same_where_this_program_is_not_installed(trained, tmp_path):
    pretrained = of_variant(trained, positions="rope")
    (tmp_path / "exported").mkdir()
    write_pretrained(tmp_path / "exported", pretrained)
    ids = padded_batch(pretrained)[0][2:]
    torch.save(ids, tmp_path / "ids")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "empty"), "HF_HUB_OFFLINE": "1"}
    names = ("exported", "once", "twice", "ids", "logits")
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *names], cwd=tmp_path, env=environment, check=True
    )
    ours = token_logits(pretrained)(ids, None)
    torch.testing.assert_close(torch.load(tmp_path / "logits"), ours, rtol=1e-4, atol=1e-4)
    assert {file.name for file in (tmp_path / "twice").glob("*.py")} == set(CODE_FILES)


def test_own_models_take_vectors_and_refuse_what_is_too_long(own_export):
    pretrained, folder = own_export
    model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True).eval()
    ids = padded_batch(pretrained)[0]
    vectors = model.get_input_embeddings()(ids)
    assert torch.equal(model(inputs_embeds=vectors).logits, model(ids).logits)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model()
    with pytest.raises(ValueError, match="33 tokens, but there are 32 positions"):
        model(torch.zeros(1, 33, dtype=torch.int64))
    before = model(ids).logits
    size = before.shape[-1]
    model.requires_grad_(False).resize_token_embeddings(size + 5)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    after = model(ids).logits
    assert after.shape[-1] == size + 5
    torch.testing.assert_close(after[..., :size], before)
    model.config.positions = "rotary"
    with pytest.raises(ValueError, match="positions='rotary' does not exist; one of bert-a"):
        AutoModel.from_config(model.config, trust_remote_code=True)


def test_an_export_that_computes_something_else_is_not_written(trained, run, tmp_path, monkeypatch):
    pretrained = of_variant(trained, **TUPE)

    def corrupted(theirs, pretrained, *, fix):
        with torch.no_grad():
            theirs.encoder.blocks[0].attention_norm.weight[3] += 0.01
        return compare_logits(theirs, pretrained, fix=fix)

    monkeypatch.setattr("pretrain.convert.exports.export.compare_logits", corrupted)
    with pytest.raises(ConfigError, match="largest difference is .* more than .e-04; nothing was"):
        export(pretrained, run, tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


def test_logits_of_any_size_may_be_rounded(trained, run, tmp_path):
    """Of a size of thousands, fp32 has steps of 1e-4 to 5e-4."""
    pretrained = of_variant(trained, **TUPE)
    pretrained.weights["head.norm.weight"].mul_(1000)
    check = export(pretrained, run, tmp_path / "exported")
    assert check.largest_difference > 1e-4


def test_a_tokenizer_that_cuts_otherwise_is_not_written(trained, run, tmp_path, monkeypatch):
    trained.text_encoder.ids("built before what is exported is another")
    other = trained.text_encoder.exported()
    other.normalizer = Replace("e", "f")
    monkeypatch.setattr(TextEncoder, "exported", lambda _: other)
    with pytest.raises(ConfigError, match="here and .* in transformers; nothing was written"):
        export(trained, run, tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_exported_by_the_command_and_started_from(command, run, tmp_path):
    words = ["export", str(run), "--checkpoint", "10", "--to", str(tmp_path / "exported")]
    status, output, errors = command.run(words)
    assert status == 0, errors
    assert f"exported tiny_cpu, step 10, to {tmp_path}/exported: with its own code" in output
    difference = re.search(r"largest difference to the trainer: (\S+) in [\d,]+ logits", output)
    assert float(difference[1]) < 1e-4
    again = ("--initial_weights", str(tmp_path / "exported"), "--learning_rate.peak", "1e-30")
    command.train(tmp_path / "more", *again, "--steps", "1")
    losses = [
        {row["step"]: row["loss"] for row in lines(folder, "evals.jsonl")}
        for folder in (run, tmp_path / "more")
    ]
    assert losses[1][1] == pytest.approx(losses[0][10], rel=1e-5)
    with pytest.raises(ConfigError, match="is neither a run folder, with its run.json, nor a chec"):
        run_of(tmp_path / "exported")
    with contextlib.chdir(run / "checkpoints/step_00000010"):
        assert run_of(Path()) == run


def test_the_card_tells_where_the_model_comes_from(run, trained, tmp_path):
    export(trained, run, tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in card.splitlines()]
    manifest = json.loads((run / "manifest.json").read_text())
    for name in ("source", "licence"):
        assert [name, plain_text(manifest[name])[1:-1]] in rows
    last = json.loads((run / "evals.jsonl").read_text().splitlines()[-1])
    assert ["held-out loss", f"{last['loss']:.3f} nats, at step 20"] in rows
    assert ["steps", "20"] in rows and "TUPE-R" in card and '"global_sequences": 8' in card


def test_the_examples_of_the_card_run(own_export, monkeypatch):
    pretrained, folder = own_export
    monkeypatch.chdir(folder.parent)
    card = (folder / "README.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", card, re.S)
    assert len(examples) == 2
    values = {}
    for example in examples:
        exec(example, values)
    assert values["states"].shape[::2] == (2, pretrained.model.width)
    assert values["model"].config.num_labels == 2


def test_a_card_says_that_moses_comes_before_the_tokenizer(trained, run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["tokenizer"]["moses"] = "en"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    record = trained.text_encoder.record.model_copy(update={"moses": "en"})
    words = type(trained.text_encoder)(trained.text_encoder.tokenizer, record)
    export(trained._replace(text_encoder=words), copy, tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    example = re.findall(r"```python\n(.*?)```", card, re.S)[-1]
    values = {}
    exec(example, values)
    assert values["text"] == "Yes , it is ."
    assert load_pretrained(tmp_path / "exported").text_encoder.record.moses == "en"
