"""Runs that start from weights: whole ones as a user starts them, and what is refused before."""

import json
import shutil

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer

from data_prep.shards.format import open_shards
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.convert.initial_weights import check_before_build, load_initial_weights
from pretrain.convert.pretrained import load_pretrained
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.schedules.learning_rate import learning_rate_at
from tests.pretrain.conftest import lines

# So small that no weight moves: what the run has after a step is what it started from.
STANDS_STILL = ("--learning_rate.peak", "1e-30", "--steps", 1, "--log_every_steps", 1)


def test_the_first_held_out_loss_is_the_last_one_of_the_source(command, source, tmp_path):
    checkpoint = source / "checkpoints/step_00000010"
    folder = command.train(tmp_path / "run", "--initial_weights", checkpoint, *STANDS_STILL)
    before = {row["step"]: row["loss"] for row in lines(source, "evals.jsonl")}
    for after in lines(folder, "evals.jsonl"):  # before the first step, and after it
        assert after["loss"] == pytest.approx(before[10], rel=1e-6)  # fp32
    (launch,) = lines(folder, "launches.jsonl")
    assert launch["initial_weights"] == {"place": str(checkpoint), "name": "small", "step": 10}


@pytest.mark.slow("three runs in a row")
def test_schedules_begin_anew_and_a_resumed_run_needs_the_source_no_more(command, source, tmp_path):
    copied = shutil.copytree(source, tmp_path / "copied")
    words = ("--initial_weights", copied, "--checkpoint.every_steps", 10)
    whole = command.train(tmp_path / "whole", *words)
    settings = load_settings(whole)
    rates = {row["step"]: row["learning_rate"] for row in lines(whole, "metrics.jsonl")}
    assert rates[5] == learning_rate_at(4, settings.learning_rate, 20)
    resumed = shutil.copytree(whole, tmp_path / "resumed")
    shutil.rmtree(resumed / "checkpoints/step_00000020")
    (resumed / "result.json").unlink()
    shutil.rmtree(copied)
    status, _, errors = command.run(["train", str(resumed), "--resume"])
    assert status == 0, errors[-3000:]
    assert lines(resumed, "metrics.jsonl") == lines(whole, "metrics.jsonl")
    assert lines(resumed, "launches.jsonl")[-1]["initial_weights"] is None


def settings_of(source, shards, *words):
    return load_settings(
        "tiny_cpu",
        ["--data.shards", str(shards), "--initial_weights", str(source), *map(str, words)],
    )


def load(source, shards, *words):
    settings = settings_of(source, shards, *words)
    model = MaskedLanguageModel(settings.model)
    return load_initial_weights(model, settings, open_shards(shards)), model


@pytest.mark.parametrize("positions", ["tupe-r", "shaw"])
def test_positions_can_be_new_and_of_another_encoding(source, shards, positions):
    words = ("--initial_positions", "new", "--model.positions", positions)
    torch.manual_seed(4)
    fresh = MaskedLanguageModel(settings_of(source, shards, *words).model).state_dict()
    torch.manual_seed(4)
    _, model = load(source, shards, *words)
    trained = load_pretrained(source).weights
    for name, weight in model.state_dict().items():
        expected = fresh if name.startswith("encoder.positions.") else trained
        assert torch.equal(weight, expected[name]), name


def test_new_positions_are_those_of_initial_weights_alone(source, shards):
    with pytest.raises(ConfigError, match="initial_positions='new' has no effect without"):
        load_settings("tiny_cpu", ["--initial_positions", "new"])
    with pytest.raises(ConfigError, match=r"model.num_layers=2 there and 4 here; give"):
        load(source, shards, "--initial_positions", "new", "--model.num_layers", 4)


@pytest.mark.parametrize(
    ("words", "described", "options"),
    [
        (("num_layers", 4), "model.num_layers=2 there and 4 here", "--model.num_layers 2"),
        (("positions", "tupe-a"), "positions=tupe-r there", "--model.positions tupe-r"),
        (("relative_max_distance", 64), "=128 there", "--model.relative_max_distance 128"),
        (
            ("width", 64, "--model.vocabulary_size", 2048),
            "model.width=32 there and 64 here, model.feedforward_width=128 there and 256 here, "
            "model.vocabulary_size=1024 there and 2048 here; give",
            "--model.width 32 --model.feedforward_width 128 --model.vocabulary_size 1024",
        ),
    ],
)
def test_another_model_is_refused_with_the_options_to_give(
    source, shards, words, described, options
):
    with pytest.raises(ConfigError) as refusal:
        load(source, shards, f"--model.{words[0]}", *words[1:])
    assert described in str(refusal.value) and str(refusal.value).endswith(options)


def unbuilt(source, tmp_path, *words):
    words = ["--corpus", str(tmp_path / "text.txt"), "--initial_weights", str(source), *words]
    return load_settings("tiny_cpu", words)


def test_before_rows_are_built_a_tokenizer_that_would_be_trained_is_refused(source, tmp_path):
    with pytest.raises(ConfigError, match="'wordpiece' would be trained") as refusal:
        check_before_build(unbuilt(source, tmp_path))
    assert str(refusal.value).endswith(f"{source} --data.moses false, and no data.shards")


def test_rows_of_other_words_are_refused_with_the_tokenizer_to_give(source, tmp_path):
    content = json.loads((source / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    first, second = sorted(words, key=words.get)[-2:]
    words[first], words[second] = words[second], words[first]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="another tokenizer than that") as refusal:
        check_before_build(unbuilt(source, tmp_path, "--data.tokenizer", str(tmp_path)))
    assert f"give --data.tokenizer {source} --data.moses false" in str(refusal.value)


def test_rows_that_were_cut_otherwise_are_refused_though_the_entries_are_the_same(source, tmp_path):
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.normalizer = BertNormalizer(lowercase=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ConfigError, match="another tokenizer than that"):
        check_before_build(unbuilt(source, tmp_path, "--data.tokenizer", str(tmp_path)))
    words = ("--data.tokenizer", str(source), "--data.moses", "true", "--data.language", "de")
    with pytest.raises(ConfigError, match="or text prepared otherwise .* --data.moses false"):
        check_before_build(unbuilt(source, tmp_path, *words))
