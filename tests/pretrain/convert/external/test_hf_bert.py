"""BERT as Hugging Face saves it, against transformers' own BertForMaskedLM."""

import json
import os

import pytest
import torch
from huggingface_hub._tree_cache import TreeCacheEntry, write_tree_cache
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertForPreTraining

from pretrain.config.errors import ConfigError
from pretrain.convert.pretrained import load_pretrained, restored_network

WORDS = "the cat dog sat ran on mat a b c ##d ##e ##f paris is capital of france . , one two"
ENTRIES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), '"']
ROWS = 40  # more than entries: padded, as is usual


def configuration(kind=BertConfig, **changes):
    return kind(
        **{
            "vocab_size": ROWS,
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 40,
            "max_position_embeddings": 20,
            **changes,
        }
    )


def save_random(folder, model):
    """Save a model whose every weight is random, token types and biases too."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.eval().parameters():
            parameter.normal_(std=0.3)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(ENTRIES) + "\n")
    return model


def save(folder, kind=BertForMaskedLM, **changes):
    return save_random(folder, kind(configuration(**changes)))


def their_logits(model, ids):
    with torch.no_grad():
        output = model(input_ids=ids)
    return output.logits if hasattr(output, "logits") else output.prediction_logits


def assert_same_logits(pretrained, model):
    ids = rows()
    with torch.no_grad():
        ours = restored_network(pretrained).logits(ids, torch.arange(ids.numel()))
    # fp32 sums of three layers, logits of size 3
    theirs = their_logits(model, ids).flatten(0, 1)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def rows():
    return torch.randint(ROWS, (3, 17), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", [BertForMaskedLM, BertForPreTraining])
def test_logits_are_those_of_transformers(tmp_path, kind):
    model = save(tmp_path, kind)
    pretrained = load_pretrained(tmp_path)
    assert (pretrained.model.positions, pretrained.model.norm) == ("bert-a", "post")
    assert (pretrained.name, pretrained.step) == (tmp_path.name, None)
    assert pretrained.sequence_length == 20
    assert_same_logits(pretrained, model)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "modernbert"}, "transformers cannot open it"),
        ({"is_decoder": True}, "has a decoder"),
        ({"num_hidden_layers": 4}, "lacks weights of its encoder: encoder.base.encoder.layer.3"),
        ({"num_hidden_layers": 2}, "describes a model that has no bert.encoder.layer.2"),
    ],
)
def test_a_model_that_computes_something_else_is_refused_by_name(tmp_path, changes, complaint):
    save(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ConfigError, match=complaint):
        load_pretrained(tmp_path)


def test_output_weights_of_their_own_are_refused(tmp_path):
    save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["cls.predictions.decoder.weight"] = torch.zeros(ROWS, 24)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match="has no place for cls.predictions.decoder.weight"):
        load_pretrained(tmp_path)


def test_a_tokenizer_with_more_entries_than_the_model_is_refused(tmp_path):
    save(tmp_path)
    more = ENTRIES + [f"word{number}" for number in range(30)]
    (tmp_path / "vocab.txt").write_text("\n".join(more) + "\n")
    with pytest.raises(ConfigError, match="has ids up to 57, but the model has 40 embeddings"):
        load_pretrained(tmp_path)


def test_words_that_transformers_cuts_otherwise_are_refused_and_its_own_file_mends_it(tmp_path):
    save(tmp_path)
    load_pretrained(tmp_path).text_encoder.tokenizer.save(str(tmp_path / "tokenizer.json"))
    configuration = {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(configuration))
    with pytest.raises(ConfigError, match="'The' becomes .* here and .* in transformers; save"):
        load_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    ids = [ENTRIES.index(entry) for entry in ("[CLS]", "[UNK]", "cat", "[SEP]")]
    assert load_pretrained(tmp_path).text_encoder.ids("The cat") == ids


def test_a_name_that_is_not_on_the_hub_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="there is no folder runs/typo, and the Hugging Face Hub"):
        load_pretrained("runs/typo")


def test_a_model_that_was_downloaded_is_used_without_asking_the_hub(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("pretrain.convert.external.transformers_folder.connect_to_hub", unreachable)
    stored = tmp_path / "models--some--bert"
    folder = stored / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("a" * 40)
    model = save(folder)
    # As the library notes what the repository has, other files too.
    entries = {name: TreeCacheEntry(1, "b" * 40) for name in (*os.listdir(folder), "README.md")}
    write_tree_cache(str(stored), "a" * 40, entries)
    assert_same_logits(load_pretrained("some/bert"), model)
    (folder / "vocab.txt").rename(tmp_path / "vocab.txt")  # as after AutoModel.from_pretrained
    with pytest.raises(AssertionError, match="the Hub was asked"):
        load_pretrained("some/bert")


def unreachable():
    raise AssertionError("the Hub was asked")


def test_an_export_on_the_hub_is_what_it_is_in_a_folder(tmp_path, monkeypatch):
    save(tmp_path)
    place = "pretrain.convert.pretrained"
    monkeypatch.setattr(f"{place}.transformers_folder", lambda name: tmp_path)
    monkeypatch.setattr(f"{place}.is_export", lambda folder: folder == tmp_path)
    monkeypatch.setattr(f"{place}.read_export", lambda folder: folder)
    assert load_pretrained("some/encoder") == tmp_path
