"""ELECTRA's discriminator: exported, loaded elsewhere and here, fine-tuned; and what is refused."""

import re

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining, ElectraConfig, ElectraForPreTraining

import tupelo
from finetune.training.model import TaskModel
from finetune.training.targets import Classes
from pretrain.config.errors import ConfigError
from pretrain.convert.exports.export import export
from pretrain.convert.exports.hf_format import write_pretrained
from pretrain.convert.exports.model_card import CARD_FILE
from pretrain.convert.external.import_model import import_model
from pretrain.convert.pretrained import load_pretrained, restored_network
from pretrain.model.objectives.catalog import build_objective
from tests.pretrain.convert.external.test_hf_bert import configuration, rows, save_random

ELECTRA = ("--objective", "replaced_token_detection", "--electra.generator_width", "0.5")
# Stock ELECTRA, and one with code of its own.
STOCK, TUPE = ("bert-a", "post"), ("tupe-r", "pre")


@pytest.fixture(scope="module")
def run(command, tmp_path_factory):
    """An ELECTRA of ten steps, with code of its own."""
    folder = tmp_path_factory.mktemp("electra") / "run"
    return command.train(folder, *ELECTRA, "--steps", 10, "--checkpoint.every_steps", 10)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("electra") / "exported"
    export(load_pretrained(run), run, folder)
    return folder


def of_variant(run, positions, norm):
    """Return an ELECTRA of which every weight has an effect on the logits."""
    pretrained = load_pretrained(run)
    values = {"positions": positions, "norm": norm}
    model = type(pretrained.model)(**pretrained.model.model_dump() | values)
    torch.manual_seed(0)
    network = build_objective(model, pretrained.objective, pretrained.electra)
    for name, parameter in network.named_parameters():
        parameter.data = torch.randn_like(parameter) * 0.3 + name.endswith("norm.weight")
    return pretrained._replace(model=model, weights=network.state_dict())


def padded_batch(pretrained):
    """Return ids, attention mask and lengths of two rows."""
    lengths = torch.tensor([32, 11], dtype=torch.int32)
    ids = torch.randint(5, 200, (2, 32), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(32) < lengths[:, None]).long()
    return ids.where(mask.bool(), torch.tensor(pretrained.text_encoder.pad)), mask, lengths


@pytest.mark.parametrize("variant", [STOCK, TUPE], ids="-".join)
@torch.no_grad()
def test_an_export_has_the_trainers_logits_in_transformers_and_is_read_back(run, tmp_path, variant):
    pretrained = of_variant(run, *variant)
    write_pretrained(tmp_path, pretrained)
    trust = variant != STOCK
    model = AutoModelForPreTraining.from_pretrained(tmp_path, trust_remote_code=trust).eval()
    name = "ElectraForPreTraining" if variant == STOCK else "TupeloForPreTraining"
    assert type(model).__name__ == name
    ids, mask, lengths = padded_batch(pretrained)
    ours = restored_network(pretrained).logits(ids, lengths)
    assert ours.std() > 0.3  # there is something to compare
    output = model(input_ids=ids, attention_mask=mask, labels=(labels := ids % 2))
    is_word = mask.bool()
    # fp32 through two blocks with large weights
    torch.testing.assert_close(output.logits[is_word], ours[is_word], rtol=1e-4, atol=1e-4)
    loss = F.binary_cross_entropy_with_logits(ours[is_word], labels[is_word].float())
    torch.testing.assert_close(output.loss, loss, rtol=1e-4, atol=1e-4)

    stored = load_file(tmp_path / "model.safetensors")
    assert not [name for name in stored if "generator" in name]
    back = load_pretrained(tmp_path)
    assert (back.objective, back.electra) == ("replaced_token_detection", None)
    kept = {n: w for n, w in pretrained.weights.items() if not n.startswith("generator.")}
    assert back.model == pretrained.model
    torch.testing.assert_close(back.weights, kept, rtol=0, atol=0)


@torch.no_grad()
def test_a_run_and_its_export_are_loaded_embedded_and_fine_tuned_from_the_discriminator(
    run, exported
):
    pretrained = load_pretrained(run)
    assert any(name.startswith("generator.") for name in pretrained.weights)
    texts = ["abcd efgh.", "ijkl"]
    for place in (run, exported):
        loaded = tupelo.load(place)
        batch = loaded.encode(texts)
        network = restored_network(pretrained)
        states = network.encoder(batch.ids, lengths_B=batch.lengths) * batch.mask[..., None]
        torch.testing.assert_close(loaded.hidden_states(texts), states)
        assert loaded.embed(texts).shape == (2, pretrained.model.width)
        with pytest.raises(ConfigError, match="is a discriminator, which predicts no words; use"):
            loaded.fill_mask("a [MASK]")
        task = TaskModel(pretrained.model, Classes(2))
        task.load_encoder(load_pretrained(place).weights)
        for name, weight in task.encoder.state_dict().items():
            assert torch.equal(weight, pretrained.weights[f"encoder.{name}"])


def test_the_card_says_what_it_is_and_its_examples_run(exported, capsys, monkeypatch):
    card = (exported / CARD_FILE).read_text()
    assert "the discriminator of an ELECTRA" in card and "fill-mask" not in card
    monkeypatch.chdir(exported.parent)
    for example in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
        exec(example, {})
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    probabilities = [float(line[1]) for line in printed if len(line) == 2]
    assert len(probabilities) > 5 and all(0 < value < 1 for value in probabilities)


def save(folder):
    config = configuration(ElectraConfig, embedding_size=24)
    return save_random(folder, ElectraForPreTraining(config))


@torch.no_grad()
def test_a_discriminator_of_transformers_has_its_logits_here(tmp_path):
    model = save(tmp_path)
    pretrained = load_pretrained(tmp_path)
    assert pretrained.objective == "replaced_token_detection"
    assert (pretrained.model.positions, pretrained.model.norm) == ("bert-a", "post")
    ours, theirs = restored_network(pretrained).logits(rows()), model(input_ids=rows()).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)  # fp32 sums of three layers
    assert tupelo.load(tmp_path).embed(["the cat sat"]).shape == (1, 24)


def test_a_discriminator_is_not_imported_for_training(tmp_path):
    save(tmp_path / "model")
    with pytest.raises(ConfigError, match="is no BERT with its head for masked words"):
        import_model(str(tmp_path / "model"), tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


def test_training_starts_from_both_networks_of_a_run_and_from_nothing_less(run, exported):
    weights = load_pretrained(run).weights
    built = tupelo.build(run, {"initial_weights": str(run)})
    assert all(torch.equal(weight, weights[name]) for name, weight in built.state_dict().items())
    for place, values, complaint in (
        (exported, {}, "are the discriminator alone, and training needs the gener"),
        (
            run,
            {"electra.generator_width": 1.0},
            "another model: electra.generator_width=0.5 there and 1.0 here; give --electra.gen",
        ),
        (
            run,
            {"objective": "masked_language_model", "electra.generator_width": 1 / 3},
            "trained with objective=replaced_token_detection, and this run has objective=masked",
        ),
    ):
        with pytest.raises(ConfigError, match=complaint):
            tupelo.build(run, {"initial_weights": str(place), **values})
