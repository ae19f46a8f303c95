"""Pre-training against transformers: the shared held-out loss, and the whole in small."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from pretrain.config.recipe import load_settings
from pretrain.data.batches import HeldOutBatches, Place
from pretrain.data.shards import open_data
from tests.pretrain.conftest import shards  # noqa: F401

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import against_hugging_face

    return against_hugging_face


def test_their_loss_is_taken_on_our_held_out_rows_and_masks(benchmark, shards):  # noqa: F811
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
    assert len(rows) == min(50, data.split("valid").num_rows)
    assert found == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_the_time_to_a_loss_is_interpolated(benchmark):
    curve = [[1.0, 6.0], [2.0, 5.0], [4.0, 4.0]]
    assert benchmark.reached(curve, 4.5) == pytest.approx(3.0)
    assert benchmark.reached(curve, 7.0) == 1.0
    assert benchmark.reached(curve, 3.0) is None


@pytest.mark.skipif(find_spec("accelerate") is None, reason="the extra benchmarks")
@pytest.mark.slow("trains six tiny models")
def test_both_sides_are_trained_and_a_second_call_repeats_nothing(tmp_path, shards):  # noqa: F811
    words = [
        *("tiny_cpu", "--minutes", "0.02", "--seeds", "1", "--rates", "1e-3", "2e-3"),
        *("--to", str(tmp_path / "both"), "--data.shards", str(shards)),
    ]

    def run():
        finished = subprocess.run(
            [sys.executable, "benchmarks/against_hugging_face.py", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert finished.returncode == 0, finished.stderr[-3000:]
        return finished.stdout

    assert "| 1 | " in run()
    summary = json.loads((tmp_path / "both" / "summary.json").read_text())
    assert set(summary["trials"]["theirs"]) == set(summary["trials"]["ours"]) == {"0.001", "0.002"}
    times = {file: file.stat().st_mtime_ns for file in tmp_path.glob("both/*/against.json")}
    assert len(times) == 2
    run()
    assert times == {file: file.stat().st_mtime_ns for file in times}
    assert (tmp_path / "both" / "theirs-seed1" / "model.safetensors").is_file()
