"""Whole runs, as a user starts them."""

import json
import re

import numpy
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from data_prep.files.errors import UserError
from data_prep.shards.format import open_shards
from data_prep.shards.manifest import sha256_of
from pretrain.__main__ import main
from pretrain.checkpoint.folders import newest_checkpoint
from pretrain.checkpoint.format import load_weights
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import OF_TEXT
from pretrain.data.batches import MaskedSplit
from pretrain.data.frequencies import frequency_entropy
from pretrain.data.shards import HELD_OUT_SEED
from pretrain.distributed.ranks import Ranks
from pretrain.model.cost import parameters_by_group
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.schedules.layer_drop import scales_of_step
from pretrain.train.checks import check_before_work
from pretrain.train.request import RunRequest
from tests.pretrain.conftest import lines
from tests.pretrain.train.recording.test_progress import (
    FULL_STEP,
    LEFT_OUT_OF_ROW,
    ROW_AND_BLOCK,
    step_flops,
)

DROPS = ("--layer_drop.schedule", "constant", "--layer_drop.theta_bar", "0.4")
STEPS = 40


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    """A run with layer drop, dropout and accumulation that was not stopped."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return command.train(folder, "--steps", STEPS, "--model.dropout", 0.1, *DROPS)


def test_the_loss_falls(whole):
    metrics = lines(whole, "metrics.jsonl")
    assert [row["step"] for row in metrics] == list(range(5, STEPS + 1, 5))
    assert metrics[-1]["loss"] < metrics[0]["loss"] - 0.1


@pytest.mark.ranks
def test_two_ranks_train_like_one(command, tmp_path):
    words = ("--batch.micro_sequences", 4, "--layer_drop.draw_per", "step", *DROPS, "--steps", 10)
    one = command.train(tmp_path / "one", *words)
    two = command.train(tmp_path / "two", *words, ranks=2)
    assert lines(two, "launches.jsonl")[0]["world_size"] == 2
    for name in ("metrics.jsonl", "evals.jsonl"):
        for ours, theirs in zip(lines(two, name), lines(one, name), strict=True):
            # another order of summation, grown over the steps
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
            # each rank computes the position bias of its own batch
            assert ours["flops"] == pytest.approx(theirs["flops"], rel=1e-2)


def test_the_held_out_loss_is_that_of_a_plain_loop_at_full_depth(whole, shards):
    settings = load_settings(whole)
    model = MaskedLanguageModel(settings.model).eval()
    model.load_state_dict(load_weights(newest_checkpoint(whole)))
    rows = MaskedSplit(open_shards(shards), "valid", settings)
    total = count = 0
    for row in range(min(settings.evaluation.rows, rows.split.num_sequences)):
        batch = rows.batch(numpy.array([row]), seed=HELD_OUT_SEED, epoch=0)
        with torch.no_grad():
            logits = model.logits(batch.ids_BS, batch.positions_M)
        total -= float(logits.log_softmax(-1)[range(len(logits)), batch.labels_M].sum())
        count += len(batch.labels_M)
    last = lines(whole, "evals.jsonl")[-1]
    assert last["predictions"] == count
    assert last["loss"] == pytest.approx(total / count, rel=1e-5)


def test_realised_keep_rates_and_flops_are_those_of_the_drop_masks(whole):
    settings = load_settings(whole)
    scales = [
        of_pass
        for step in range(STEPS)
        for of_pass in scales_of_step(step, settings, theta=0.4, count=2)
    ]
    metrics = lines(whole, "metrics.jsonl")
    for index, row in enumerate(metrics):
        drawn = numpy.array(scales[10 * index : 10 * index + 10]) != 0
        assert row["keep_rates"] == pytest.approx(drawn.mean(0).tolist())
        assert row["theta"] == 0.4
    kept = (numpy.array(scales) != 0).sum(1)
    last = metrics[-1]
    steps = kept.reshape(STEPS, 2).tolist()
    assert last["flops"] == pytest.approx(sum(step_flops(*blocks) for blocks in steps))
    assert last["full_depth_flops"] == pytest.approx(STEPS * FULL_STEP)
    dropped = (0.3 + 0.6) * ROW_AND_BLOCK - 0.3 * 0.6 * LEFT_OUT_OF_ROW  # of a row
    expected = last["full_depth_flops"] - STEPS * 8 * dropped
    assert last["expected_flops"] == pytest.approx(expected)


def test_speed_and_memory_are_in_every_line(whole):
    for row in lines(whole, "metrics.jsonl", without=()):
        assert row["samples_per_second"] == pytest.approx(row["tokens_per_second"] / 32)
        assert 0 < row["model_flops_utilisation"] < 1
        assert row["peak_memory_bytes"] > 50e6  # PyTorch alone takes more


def test_tensorboard_shows_the_held_out_loss(whole):
    events = EventAccumulator(str(whole))
    events.Reload()
    last = events.Scalars("held_out/loss")[-1]
    row = lines(whole, "evals.jsonl")[-1]
    assert last.step == STEPS and last.value == pytest.approx(row["loss"], rel=1e-6)


def test_the_run_folder_tells_what_the_run_was(whole, shards):
    assert {"run.json", "ds_config.json", "tokenizer.json", "result.json"} <= {
        file.name for file in whole.iterdir()
    }
    data = json.loads((whole / "run.json").read_text())["data"]
    said = open_shards(shards).manifest.settings
    assert {name: said[name] for name in OF_TEXT} == {name: data[name] for name in OF_TEXT}
    (launch,) = lines(whole, "launches.jsonl")
    assert {"command", "commit", "versions", "device", "held_out", "training_data"} <= set(launch)
    assert launch["manifest"] == sha256_of(shards / "manifest.json")
    assert launch["tokenizer"] == sha256_of(shards / "tokenizer.json")
    assert (launch["hosts"], launch["precision"], launch["zero_stage"]) == (1, "float32", 1)
    assert launch["variables"]["OMP_NUM_THREADS"] == "1" and launch["threads"] == 1
    assert launch["changed_settings"] == {}
    entropy = frequency_entropy(open_shards(shards), load_settings(whole))
    assert launch["frequency_entropy"] == entropy
    result = json.loads((whole / "result.json").read_text())
    assert result["held_out_loss"] == lines(whole, "evals.jsonl")[-1]["loss"]
    assert (whole / "tokenizer.json").read_bytes() == (shards / "tokenizer.json").read_bytes()


def test_fill_mask_prints_the_five_best_words(whole, capsys):
    main(["fill-mask", str(whole), "abcd", "[MASK]", "efgh."])
    guesses = [line.split() for line in capsys.readouterr().out.splitlines() if "%" in line]
    assert len(guesses) == 5
    probabilities = [float(guess[0].rstrip("%")) for guess in guesses]
    assert probabilities == sorted(probabilities, reverse=True) and probabilities[0] > 0
    with pytest.raises(ConfigError, match=r"has no \[MASK\]"):
        main(["fill-mask", str(whole), "no mask"])


def test_a_dry_run_ends_with_disk_and_how_to_measure_time(command, tmp_path, capsys):
    words = command.words("--run-folder", tmp_path, "--steps", "3600000", "--dry-run")
    main(words)
    output = capsys.readouterr().out
    parameters = parameters_by_group(load_settings("tiny_cpu").model)["total"]
    assert f"{12 * parameters / 1024:.1f} KiB each" in output
    rows = sum(split.rows for split in open_shards(command.shards).manifest.splits.values())
    assert f"{2 * 32 * rows / 1024:.1f} KiB in {command.shards}" in " ".join(output.split())
    assert f"iB in {tmp_path} time" in " ".join(output.split())  # is free
    assert (
        "not known; where it will run, tupelo train with --dry-run --measure 60 measures it"
        in " ".join(output.split())
    )
    assert "memory per rank" in output and not list(tmp_path.iterdir())
    main(command.words("--hours", "24", "--dry-run"))
    said = " ".join(capsys.readouterr().out.split())
    assert "what 24 h allow; tupelo train with --dry-run --measure 60 measures it" in said


def test_a_dry_run_of_a_finished_run_needs_no_shards_and_says_so(whole, capsys):
    main(["train", str(whole), "--resume", "--dry-run", "--data.shards", "nowhere"])
    assert f"{whole} is finished already: {STEPS} steps" in capsys.readouterr().out


def test_a_dry_run_reports_all_that_a_start_would_refuse(tmp_path, capsys):
    (tmp_path / "note.txt").write_text("")
    words = [
        *("train", "tiny_cpu", "--dry-run", "--run-folder", str(tmp_path)),
        *("--engine.ds_config", "zero1_fp16", "--corpus", str(tmp_path / "nowhere.txt")),
    ]
    with pytest.raises(SystemExit, match="1"):
        main(words)
    output = capsys.readouterr().out
    refused = [line for line in output.splitlines() if re.match(r"(it|this machine) cannot ", line)]
    texts = ("note.txt", "cannot execute it: fp16 needs a CUDA device", "nowhere.txt")
    for line, text in zip(refused, texts, strict=True):
        assert text in line
    assert "tokens per step" in output  # it is described all the same


def test_what_cannot_train_is_refused_before_shards_are_built(tmp_path, monkeypatch):
    """A start builds by this command."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("A text that is there.\n\nAnother one.\n")
    words = ("--ranks", "1", "--corpus", "text.txt", "--initial_weights", "nowhere")
    with pytest.raises(ConfigError, match="nowhere"):
        main(["prepare", "tiny_cpu", *words])
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--data.lowercase", "false"), ("--data.tokenizer", "vocab.txt"), ("--corpus", "/nope")],
)
def test_a_setting_without_effect_on_the_shards_that_are_named_is_refused(
    command, tmp_path, option, value
):
    with pytest.raises(ConfigError, match=rf"(?i)=.*{value}.* has no effect on the shards in"):
        main(command.words("--run-folder", tmp_path, option, value))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--engine.ds_config", "zero1_fp16"), "fp16 needs a CUDA device"),
        (("--data.tokenizer", "WORDS"), "entries, more than model.vocabulary_size=256"),
        (("--data.corpus", "nowhere.txt"), "nowhere.txt: no such file or folder"),
        (("--data.corpus", "EMPTY"), "is empty"),
        (("--engine.ds_config", "nowhere"), "engine.ds_config='nowhere' is neither a file"),
    ],
)
def test_the_checks_of_a_run_name_what_is_wrong(tmp_path, words, message):
    text, empty, vocabulary = (tmp_path / name for name in ("text.txt", "empty.txt", "vocab.txt"))
    text.write_text("A text that is there.\n\nAnother one.\n")
    empty.write_text("")
    entries = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(300)))
    vocabulary.write_text("\n".join(entries) + "\n")
    places = {"EMPTY": str(empty), "WORDS": str(vocabulary)}
    size = ("--model.vocabulary_size", "256", "--data.corpus", str(text))
    words = [places.get(word, word) for word in words]
    with pytest.raises(UserError, match=message) as refused:
        request = RunRequest(load_settings("tiny_cpu", [*size, *words]), tmp_path / "run")
        check_before_work(request, Ranks(0, 1, "cpu"))
    assert "\n" not in str(refused.value)
