"""A kept model is read back whole, alone, and not at all when it is damaged."""

import json
import shutil

import pytest
import torch

from finetune.models.kept_model import (
    RECORD_FILE,
    as_pretrained,
    has_model,
    kept_folder,
    read_model,
    remove_model,
)
from finetune.training.train import build_task_model
from pretrain.config.errors import ConfigError
from tests.finetune.fine_tuning_case import protocol
from tests.finetune.models.kept_case import fine_tuned


def test_weights_labels_and_scores_are_read_back_from_a_copy_of_the_folder(classes, tmp_path):
    copy = shutil.copytree(classes.folder, tmp_path / "copy")
    record, weights, text_encoder = read_model(copy)
    expected = classes.run.model.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert record.labels == ("few", "more", "many, many") and record.texts == ("text",)
    assert record.metric == "accuracy" and record.scores == classes.result.scores
    assert text_encoder.fingerprint() == classes.pretrained.text_encoder.fingerprint()
    assert classes.result.source not in record.model_dump_json()


HEADS = ("classifier.dense.weight", "classifier.output.weight")


def test_the_start_of_another_task_is_the_encoder_with_a_new_head(classes):
    start = as_pretrained(classes.folder)
    assert (start.name, start.step) == ("tiny step 7 after letters", None)
    assert start.sequence_length == classes.pretrained.sequence_length
    model = build_task_model(start, protocol(), num_outputs=2, seed=3, takes_weights=True)
    before, after = classes.run.model.state_dict(), model.state_dict()
    for name, tensor in before.items():
        if name.startswith("encoder."):
            assert torch.equal(after[name], tensor)
    fresh = build_task_model(
        classes.pretrained, protocol(), num_outputs=2, seed=3, takes_weights=True
    ).state_dict()
    assert all(torch.equal(after[name], fresh[name]) for name in HEADS)
    assert not torch.equal(
        after["encoder.token_embeddings.weight"], fresh["encoder.token_embeddings.weight"]
    )


def damaged(folder, name, change):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(change(content))


def flipped(content):
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


def other_vocabulary(content):
    tokenizer = json.loads(content)
    words = tokenizer["model"]["vocab"]
    last = max(words, key=words.get)
    words[f"{last}{last}"] = words.pop(last)
    return json.dumps(tokenizer).encode()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.safetensors", flipped, "model.safetensors is damaged: it is not as it was written"),
        ("tokenizer.json", other_vocabulary, "is not the tokenizer that this model was trained"),
        (RECORD_FILE, lambda content: content[:-20], f"{RECORD_FILE} is damaged"),
        (RECORD_FILE, lambda content: content.replace(b'"seed": 0', b'"seed": -1'), "seed"),
        (
            RECORD_FILE,
            lambda content: content.replace(b'"more"', b'"few"'),
            "labels: two or more, each of them once, or none",
        ),
        (
            RECORD_FILE,
            lambda content: content.replace(b'"width": 16', b'"width": 32'),
            "model.safetensors: classifier.dense.bias is .16,. instead of .32,.",
        ),
    ],
)
def test_damage_is_one_line_that_names_the_file(classes, tmp_path, name, change, message):
    copy = shutil.copytree(classes.folder, tmp_path / "copy")
    damaged(copy, name, change)
    with pytest.raises(ConfigError, match=message) as caught:
        read_model(copy)
    assert str(copy) in str(caught.value) and "\n" not in str(caught.value)


def test_the_only_model_below_a_folder_is_found_and_of_several_one_must_be_named(classes, tmp_path):
    sweep = classes.folder.parents[4]
    for place in (sweep, *classes.folder.parents[:4], classes.folder):
        assert kept_folder(place) == classes.folder
    shutil.copytree(sweep, tmp_path / "sweep")
    other = tmp_path / "sweep/letters/tiny/lr_0.01/seed_3"
    shutil.copytree(classes.folder.parent, other)
    with pytest.raises(ConfigError, match="holds 2 fine-tuned models; name the one .*lr_0.01/seed"):
        kept_folder(tmp_path)
    with pytest.raises(ConfigError, match="absent holds no fine-tuned model .*run RUN --keep best"):
        kept_folder(tmp_path / "absent")


def test_a_model_is_removed_with_what_killed_processes_left_of_it(tmp_path):
    case = fine_tuned(tmp_path / "trial")
    shutil.copytree(case.folder, case.folder.with_suffix(".partial"))
    shutil.copytree(case.folder, case.folder.with_suffix(".removed"))
    assert has_model(tmp_path / "trial")
    remove_model(tmp_path / "trial")
    assert not list((tmp_path / "trial").iterdir())
    remove_model(tmp_path / "trial")
