"""`python -m pretrain import`: what it writes is what it read, and trains further."""

import re

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining

import tupelo
from data_prep.shards.manifest import ShardError
from pretrain.__main__ import main
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.convert.initial_weights import check_before_build
from pretrain.convert.pretrained import load_pretrained
from pretrain.data.shards import build_settings
from tests.pretrain.convert.external import test_fairseq_tupe as tupe
from tests.pretrain.convert.external import test_hf_bert as bert
from tests.pretrain.convert.external.authors_model import checkpoint
from tests.pretrain.convert.test_pretrained import equal


def imported(tmp_path, place):
    main(["import", str(place), "--to", str(tmp_path / "imported")])
    return tmp_path / "imported"


@pytest.fixture
def stored_bert(tmp_path):
    folder = tmp_path / "their_bert"
    folder.mkdir()
    model = bert.save(folder, BertForPreTraining)
    return folder, model


def test_an_imported_bert_is_what_was_read_here_and_in_transformers(tmp_path, stored_bert, capsys):
    source, model = stored_bert
    folder = imported(tmp_path, source)
    said = capsys.readouterr().out
    assert float(re.search(r"difference to transformers: (\S+) in", said)[1]) < 1e-4
    assert f"tupelo train {folder}/recipe.toml --corpus" in said
    read, written = load_pretrained(source), load_pretrained(folder)
    assert equal(written.weights, read.weights) and written.model == read.model
    assert written.text_encoder.ids("The cat [MASK].") == read.text_encoder.ids("The cat [MASK].")
    assert written.name == "their_bert"
    again = AutoModelForMaskedLM.from_pretrained(folder).eval()
    found, expected = (bert.their_logits(each, bert.rows()) for each in (again, model))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("the cat")["input_ids"] == read.text_encoder.ids("the cat")


def test_a_bert_in_half_precision_is_compared_in_full(tmp_path, stored_bert, capsys):
    source, model = stored_bert
    # Of size 100, which half precision computes to 1.
    model.cls.predictions.transform.LayerNorm.weight.data.mul_(100)
    model.bfloat16().save_pretrained(source)
    folder = imported(tmp_path, source)
    assert "difference to transformers" in capsys.readouterr().out
    name = "encoder.token_embeddings.weight"
    stored = model.bert.embeddings.word_embeddings.weight
    assert torch.equal(load_pretrained(folder).weights[name], stored.float())


def test_an_imported_checkpoint_of_the_authors_is_what_was_read(tmp_path):
    file = tupe.write(tmp_path, checkpoint(tupe.ROWS, pre=True))
    written, read = load_pretrained(imported(tmp_path, file)), load_pretrained(file)
    assert equal(written.weights, read.weights) and written.model == read.model
    assert written.text_encoder.record.moses == "en"
    for text in ("the that", "a [MASK] tx ha"):
        assert written.text_encoder.ids(text) == read.text_encoder.ids(text)


def test_the_recipe_is_that_of_the_model_and_starts_from_its_weights(tmp_path):
    file = tupe.write(tmp_path, checkpoint(tupe.ROWS))
    folder = imported(tmp_path, file)
    settings = load_settings(folder / "recipe.toml")
    assert settings.model == load_pretrained(file).model
    assert settings.initial_weights == str(folder)
    assert settings.data.tokenizer == str(folder / "tokenizer.json") and settings.data.moses
    assert settings.data.sequence_length == tupe.POSITIONS
    assert settings.name == "tupe_r"
    with pytest.raises(ConfigError, match="names no text; give yours with --corpus"):
        build_settings(settings)
    assert equal(tupelo.build(folder / "recipe.toml").state_dict(), load_pretrained(file).weights)


def test_without_a_tokenizer_for_rows_the_import_is_advised(tmp_path):
    file = tupe.write(tmp_path, checkpoint(tupe.ROWS))
    recipe = imported(tmp_path, file) / "recipe.toml"
    words = ("--corpus", str(tmp_path), "--initial_weights", str(file))
    check_before_build(load_settings(recipe, words))
    with pytest.raises(ConfigError) as refusal:
        check_before_build(load_settings(recipe, [*words, "--data.tokenizer", "wordpiece"]))
    advice = f"tupelo import {file} --to FOLDER writes"
    assert str(refusal.value).endswith(advice)


def test_what_cannot_be_imported_is_refused_before_it_is_read(tmp_path, stored_bert):
    (tmp_path / "imported").mkdir()
    with pytest.raises(ShardError, match="exists already"):
        imported(tmp_path, "not/there")
    (tmp_path / "imported").rmdir()
    with pytest.raises(ConfigError, match="holds no pre-trained model; give"):
        imported(tmp_path, tmp_path)
    checkpoint = tmp_path / "run" / "checkpoints" / "step_00000010"
    checkpoint.mkdir(parents=True)
    for folder in (checkpoint, imported(tmp_path, stored_bert[0])):
        with pytest.raises(ConfigError, match="is already a model of this program; start"):
            imported(tmp_path, folder)
