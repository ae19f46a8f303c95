"""Pre-training against transformers: the shared held-out loss, and the whole in small."""
# ruff: noqa: F811

import json
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, RoFormerForMaskedLM

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.data.batches import HeldOutBatches, Place
from pretrain.data.shards import open_data
from tests.forked_command import run_module
from tests.pretrain.conftest import shards  # noqa: F401

ROOT = Path(__file__).parents[2]
RATES = ("0.001", "0.002")


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "against_hugging_face"))
    import their_trainer

    return their_trainer


def test_their_loss_is_taken_on_our_held_out_rows_and_masks(benchmark, shards):
    settings = load_settings("tiny_cpu", ["--data.shards", str(shards), "--evaluation.rows", "50"])
    torch.manual_seed(0)
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=1024,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=32,
        )
    )
    data = open_data(settings)
    found = benchmark.HeldOut(settings, data, 10).loss_of(model)
    model.eval()
    losses = []
    rows = HeldOutBatches(data, settings, Place(1, 0, 1))  # a row at a time
    for number in range(len(rows)):
        ids, positions, labels = rows[number]
        with torch.no_grad():
            scores = model(input_ids=ids).logits[0].log_softmax(-1)
        losses += [
            -scores[place, label].item() for place, label in zip(positions, labels, strict=True)
        ]
    assert len(rows) == min(50, data.split("valid").num_sequences)
    assert found == pytest.approx(sum(losses) / len(losses), rel=1e-5)


@pytest.fixture
def program(benchmark):
    return runpy.run_path(str(ROOT / "benchmarks/against_hugging_face/__main__.py"))


def test_results_of_another_command_are_refused(program, monkeypatch, tmp_path, shards):
    trained = []

    def our_run(recipe, words, rate, minutes, folder):
        trained.append(folder.name)
        folder.mkdir(parents=True)
        return [[1, 1.0, 5.0]]

    monkeypatch.setitem(program["main"].__globals__, "our_run", our_run)

    def train(*words, theirs="bert", minutes=1.0):
        arguments = SimpleNamespace(
            **{"recipe": "tiny_cpu", "minutes": minutes, "seeds": [1], "rates": [1e-3]},
            **{"trial_share": 0.5, "to": tmp_path, "theirs": theirs},
        )
        words = ("--data.shards", str(shards), *words)
        return program["Comparison"](arguments, words).train("ours")

    assert train() == train() == {1: [[1, 1.0, 5.0]]}
    assert trained == ["ours-0.001", "ours-seed1"]
    with pytest.raises(ConfigError, match="is of another command; choose another folder with --to"):
        train(minutes=2.0)
    for other in (lambda: train("--model.norm", "post"), lambda: train(theirs="roformer")):
        with pytest.raises(ConfigError, match="is of another command"):
            other()


def test_a_loss_that_ours_never_reaches_is_no_ratio_of_0(program, capsys):
    theirs = {seed: [(1, 100.0, 4.0)] for seed in (1, 2, 3, 4)}
    reached, missed = [(1, 50.0, 4.0)], [(1, 50.0, 4.5)]

    def median(*curves):
        seeds = dict(enumerate(curves, start=1))
        program["print_summary"]({seed: theirs[seed] for seed in seeds}, seeds)
        return capsys.readouterr().out.splitlines()[-1]

    assert median(reached, reached, missed) == "median: 2.0 times sooner"
    assert median(reached, reached, missed, missed) == median(missed, missed) == "median: never"


def test_their_type_and_precision_are_those_given(benchmark, monkeypatch, shards):
    monkeypatch.setattr(benchmark, "TrainingArguments", lambda **given: given)
    monkeypatch.setattr(benchmark, "Trainer", lambda **given: (given["model"], given["args"]))
    words = [f"--data.shards={shards}", "--model.transformers=roformer"]
    settings = load_settings("tiny_cpu", words)
    data = open_data(settings)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model, given = benchmark.their_trainer(settings, data, Path("x"), dtype, 1e-3, 10, [])
        assert type(model) is RoFormerForMaskedLM
        assert given["bf16"] is (dtype is torch.bfloat16)
        assert given["fp16"] is (dtype is torch.float16)


def test_what_would_compare_unequal_batches_or_fail_late_is_refused(program, monkeypatch):
    check = program["check_machine"]
    monkeypatch.setitem(check.__globals__, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"accelerate: pip install -e '\.\[benchmarks\]'$"):
        check(["theirs", "ours"])
    check(["ours"])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES=0$"):
        check(["ours"])


@pytest.mark.skipif(find_spec("accelerate") is None, reason="the extra benchmarks")
@pytest.mark.slow("trains six tiny models")
def test_both_sides_train_at_their_best_rates(program, monkeypatch, tmp_path, capsys, shards):
    def forked(command, check):
        return SimpleNamespace(returncode=run_module(command[2], command[3:])[0])

    by_forks = SimpleNamespace(run=forked)
    monkeypatch.setitem(program["our_run"].__globals__, "subprocess", by_forks)
    words = ["tiny_cpu", "--minutes", "0.02", "--seeds", "1", "--rates", *RATES]
    words += [f"--to={tmp_path / 'both'}", f"--data.shards={shards}", "--theirs=modernbert"]
    monkeypatch.setattr(sys, "argv", ["against_hugging_face", *words])
    program["main"]()
    output = capsys.readouterr().out
    assert "| 1 | " in output and "theirs, loss at the end of a trial" in output
    trials = {file.parent.name: result_of(file) for file in tmp_path.glob("both/trials/*/a*.json")}
    assert set(trials) == {f"{side}-{rate}" for side in ("theirs", "ours") for rate in RATES}
    ends = {name: trial["curve"][-1][2] for name, trial in trials.items()}
    best = min((ends[f"theirs-{rate}"], rate) for rate in RATES)[1]
    reported = result_of(tmp_path / "both" / "theirs-seed1" / "against.json")
    assert reported["learning_rate.peak"] == float(best) and reported["seed"] == 1
    assert {"precision", "theirs", "threads"} <= set(reported)  # which paper/build.py reads too
    steps, seconds, _ = zip(*reported["curve"], strict=True)
    assert list(steps) == sorted(set(steps)) and list(seconds) == sorted(seconds)
    assert (tmp_path / "both" / "theirs-seed1" / "model.safetensors").is_file()
    shape = result_of(tmp_path / "both" / "theirs-seed1" / "config.json")
    assert (shape["model_type"], shape["num_hidden_layers"]) == ("modernbert", 2)
    assert result_of(tmp_path / "both" / "ours-seed1" / "against.json")["curve"]


def result_of(file):
    return json.loads(file.read_text())
