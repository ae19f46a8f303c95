"""Exports, BERTs of Hugging Face and checkpoints of the TUPE authors, damaged or made to harm."""

import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from data_prep.tokenizer.describe import TokenizerError
from pretrain.config.errors import ConfigError
from pretrain.convert.exports.hf_format import write_pretrained
from pretrain.convert.pretrained import load_pretrained, restored_network
from tests.hostile.mutations import mutated_bytes, mutated_json
from tests.hostile.property import check_file, result_or_clear_error
from tests.pretrain.convert.exports.conftest import small_model
from tests.pretrain.convert.external.authors_model import checkpoint
from tests.pretrain.convert.external.test_fairseq_tupe import ROWS, write
from tests.pretrain.convert.external.test_hf_bert import save
from tests.pretrain.convert.small_tokenizers import text_encoder_of, trained

ERRORS = (ConfigError, TokenizerError)


def exported(folder, **variant):
    """Write a small model as `pretrain export` does."""
    folder.mkdir(parents=True)
    words = text_encoder_of(trained("wordpiece"), folder)
    write_pretrained(folder, small_model(words, **variant))
    return folder


def use(place):
    """Load a model and compute with it, as every command that takes one does."""
    pretrained = load_pretrained(place)
    ids = pretrained.text_encoder.ids("The parser [MASK] a file.")[: pretrained.sequence_length]
    with torch.no_grad():
        logits = restored_network(pretrained).logits(torch.tensor([ids]), torch.arange(len(ids)))
    # One flipped bit makes of a weight 1e38: a number, though no product with it is one.
    is_plausible = all(weight.abs().max() < 1e6 for weight in pretrained.weights.values())
    assert logits.isfinite().all() or not is_plausible
    return pretrained


def used(place):
    """Return what `use` returns, or None where it refuses the model clearly."""
    return result_or_clear_error(lambda: use(place), ERRORS, naming=[str(place), "model."])


def check_model(folder, name):
    """Check that with any mutation of one file the model is used or refused."""
    mutate = mutated_json if name.endswith("json") else mutated_bytes
    check_file(folder / name, mutate, lambda: use(folder), ERRORS, naming=[str(folder), "model."])


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    return {
        "stock": exported(folder / "stock", positions="bert-a", norm="post"),
        "own": exported(folder / "own", positions="tupe-r"),
    }


@pytest.mark.parametrize(
    ("kind", "name"),
    [("stock", "config.json"), ("own", "config.json"), ("own", "model.safetensors")]
    + [("own", "tokenizer.json")],
)
def test_any_file_of_an_export_is_used_or_refused(exports, kind, name):
    check_model(exports[kind], name)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    save(folder)
    return folder


@pytest.mark.parametrize("name", ["config.json", "vocab.txt"])
def test_any_file_of_a_bert_is_used_or_refused(bert, name):
    check_model(bert, name)


def test_weights_whose_shapes_or_numbers_are_wrong_are_refused(bert, exports):
    for folder, name in (
        (bert, "bert.embeddings.token_type_embeddings.weight"),
        (bert, "bert.encoder.layer.1.attention.self.key.weight"),
        (exports["stock"], "cls.predictions.bias"),
        (exports["own"], "head.output_bias"),
    ):
        file = folder / "model.safetensors"
        content, weights = file.read_bytes(), load_file(file)
        for change in (
            lambda tensor: tensor[:0],
            lambda tensor: tensor[..., :1],
            lambda tensor: torch.full_like(tensor, float("nan")),
        ):
            changed = {**weights, name: change(weights[name]).contiguous()}
            save_file(changed, file, metadata={"format": "pt"})
            assert used(folder) is None
        file.write_bytes(content)
        use(folder)


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (open, (str(self.file), "w"))


@pytest.mark.parametrize("protocol", [None, 2])
def test_no_weights_of_others_execute_anything(tmp_path, bert, protocol):
    harm = tmp_path / "harm"
    folder = shutil.copytree(bert, tmp_path / "bert")
    (folder / "model.safetensors").unlink()
    for file, content in (
        (folder / "pytorch_model.bin", {"weight": Malicious(harm)}),
        (tmp_path / "tupe_r.pt", {"args": Malicious(harm), "model": {}}),
    ):
        if protocol is None:
            torch.save(content, file)
        else:
            file.write_bytes(pickle.dumps(content, protocol))
        place = folder if file.parent == folder else file
        with pytest.raises(ConfigError, match="cannot open the model|executing"):
            load_pretrained(place)
    assert not harm.exists()


NOT_WEIGHTS = (
    [1, 2],
    {1: torch.zeros(3)},
    {"decoder.sentence_encoder.pos.weight": torch.zeros(1).expand(1 << 40)},
    {"decoder.sentence_encoder.pos.weight": torch.eye(3).to_sparse()},
)


@pytest.mark.parametrize("stored", NOT_WEIGHTS, ids=range(len(NOT_WEIGHTS)))
def test_pickles_that_hold_no_plain_tensors_are_refused(tmp_path, stored):
    torch.save({**checkpoint(ROWS), "model": stored}, tmp_path / "tupe_r.pt")
    assert used(tmp_path / "tupe_r.pt") is None


def test_every_weight_of_a_checkpoint_has_its_shape_or_is_refused(tmp_path):
    for number, name in enumerate(list(checkpoint(ROWS)["model"])[::7]):
        state = checkpoint(ROWS)
        state["model"][name] = torch.zeros([(), (0,), (2, 2)][number % 3])
        file = write(tmp_path, state)
        assert used(file) is None, name


@pytest.mark.parametrize("name", ["dict.txt", "bpe-code"])
def test_any_words_of_a_checkpoint_are_used_or_refused(tmp_path, name):
    write(tmp_path, checkpoint(ROWS))
    naming = [str(tmp_path), "tokenizer"]
    file = tmp_path / "tupe_r.pt"
    check_file(tmp_path / name, mutated_bytes, lambda: use(file), ERRORS, naming=naming)
