"""What pre-training has made is read back whole, or refused in one line."""

import json
import shutil

import pytest
import torch
from tokenizers import Tokenizer

from data_prep.text.text_encoder import TextEncoder
from pretrain.checkpoint.folders import checkpoints_of
from pretrain.checkpoint.format import load_weights
from pretrain.config.errors import ConfigError
from pretrain.convert.fill_mask import fill_mask
from pretrain.convert.pretrained import load_pretrained, restored_network


def equal(weights, others):
    return weights.keys() == others.keys() and all(
        torch.equal(weights[name], others[name]) for name in weights
    )


def test_a_run_is_its_newest_checkpoint(source):
    pretrained = load_pretrained(source)
    newest = source / "checkpoints" / "step_00000020"
    assert equal(pretrained.weights, load_weights(newest))
    assert (pretrained.name, pretrained.step, pretrained.place) == ("small", 20, str(newest))
    assert pretrained.sequence_length == 32
    encoder = pretrained.text_encoder
    assert encoder.ids("abcd", max_length=8)[0] == encoder.special["cls"]


@pytest.mark.parametrize("checkpoint", [10, "step_00000010"])
def test_an_older_checkpoint_is_had_by_its_step_or_its_folder(source, checkpoint):
    folder = checkpoints_of(source)[0]
    older = load_pretrained(source, checkpoint=checkpoint)
    by_folder = load_pretrained(str(folder))
    assert older.step == by_folder.step == 10 and older.place == by_folder.place == str(folder)
    assert equal(older.weights, by_folder.weights)
    assert not equal(older.weights, load_pretrained(source).weights)


def test_a_token_after_unused_numbers_can_be_guessed(source):
    pretrained = load_pretrained(source)
    last = pretrained.model.vocabulary_size - 1
    content = json.loads(pretrained.text_encoder.tokenizer.to_str())
    assert len(content["model"]["vocab"]) < last
    content["model"]["vocab"]["lastly"] = last
    record = pretrained.text_encoder.record.model_copy(update={"vocabulary_size": last + 1})
    words = TextEncoder(Tokenizer.from_str(json.dumps(content)), record)
    pretrained.weights["head.output_bias"][last] = 100
    network, longest = restored_network(pretrained), pretrained.sequence_length
    ((guess,),) = fill_mask(network, words, "abcd [MASK]", top=1, longest_row=longest)
    assert guess.token == "lastly"


def test_what_is_no_model_is_refused(source, tmp_path):
    for place in (tmp_path, tmp_path / "missing", source / "checkpoints"):
        with pytest.raises(ConfigError, match="holds no pre-trained model; give a run folder"):
            load_pretrained(place)
    with pytest.raises(ConfigError, match="no checkpoint of step 15; it has: 10, 20"):
        load_pretrained(source, checkpoint=15)
    with pytest.raises(ConfigError, match="checkpoint='last' is not a step, such as 10000"):
        load_pretrained(source, checkpoint="last")
    with pytest.raises(ConfigError, match="not a run folder: it has no run.json; leave the check"):
        load_pretrained(source / "checkpoints" / "step_00000010", checkpoint=10)


def test_a_damaged_checkpoint_is_refused_with_what_to_do(source, tmp_path):
    copy = shutil.copytree(source, tmp_path / "run")
    (copy / "checkpoints" / "step_00000020" / "part_00000.safetensors").unlink()
    with pytest.raises(ConfigError, match="_00000020 is damaged .*; name another checkpoint of"):
        load_pretrained(copy)


def test_weights_of_another_variant_are_refused_by_name(source):
    pretrained = load_pretrained(source)
    other = pretrained.model.model_copy(update={"positions": "bert-a", "norm": "post"})
    with pytest.raises(ConfigError) as refusal:
        pretrained._replace(model=other).checked()
    message = str(refusal.value)
    assert "needs encoder.positions.position_embeddings.weight and has no place for" in message
    assert "encoder.final_norm.bias, encoder.final_norm.weight" in message
    wider = pretrained.model.model_copy(update={"vocabulary_size": 2048})
    with pytest.raises(ConfigError, match=r"weight is \(1024, .* instead of \(2048, "):
        pretrained._replace(model=wider).checked()
    with pytest.raises(ConfigError, match="objective=toy; this needs a model of objective="):
        restored_network(pretrained._replace(objective="toy"))
