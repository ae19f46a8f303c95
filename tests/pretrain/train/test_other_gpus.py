"""A dry run for GPUs that this machine lacks: ZeRO stage, micro-batches and memory."""

import dataclasses
import re

import pytest

from pretrain.__main__ import main
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.distributed.hardware import DATASHEETS, HALF, Gpu
from pretrain.distributed.ranks import Ranks
from pretrain.engine.zero_choice import automatic_stage
from pretrain.train.checks import ranks_here

MATRICES = 24 * 12 * 1024**2  # of the blocks


@pytest.fixture
def described(capsys, tmp_path, monkeypatch):
    """Return what a dry run prints, in one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a text\n" * 100)

    def run(recipe, gpus, *words):
        command = ["train", recipe, "--dry-run", "--on", gpus, "--corpus", "text.txt"]
        main([*command, *words])
        return " ".join(capsys.readouterr().out.split())

    return run


@pytest.mark.parametrize("recipe", ["bert_large", "tupe_large"])
def test_a_large_run_on_16_gpus_is_described_anywhere(described, recipe):
    text = described(recipe, "16xA100-SXM4-80GB")
    assert "16 x 1 x 16 ZeRO stage 0" in text and "of 79.0 GiB free" in text
    assert "cannot" not in text
    # 6 FLOPs a token and weight of the blocks; attention and head come on top, a fifth here.
    flops = 1e6 * 256 * 512 * 6 * MATRICES
    found = float(re.search(r"FLOPs in all ([\d.e+]+)", text).group(1))
    assert 1.05 * flops < found < 1.35 * flops


def test_a_gpu_without_bf16_takes_fp16_and_stage_1(described):
    text = described("bert_large", "8xTesla V100-SXM2-16GB")
    assert "ZeRO stage 1" in text and "of 15.0 GiB free" in text


def test_the_stage_depends_on_the_gpus_that_are_described():
    settings = load_settings("bert_large")
    assert automatic_stage(settings, ranks_here(1, "8xA100-SXM4-80GB")) == 0
    small = dataclasses.replace(ranks_here(1, "8xA10"), gpu=Gpu(1e12, HALF, 8 * 10**9))
    assert automatic_stage(settings, small) == 1
    assert automatic_stage(settings, dataclasses.replace(small, world_size=1)) == 0


def test_every_known_gpu_has_memory_and_can_be_named():
    for name, gpu in DATASHEETS.items():
        assert ranks_here(1, f"2x{name}") == Ranks(0, 2, "cuda", gpu)
        advertised = re.search(r"(\d+)GB", name)
        if advertised:
            assert 0.9 * int(advertised[1]) < gpu.memory_bytes / 2**30 < int(advertised[1])


def test_what_does_not_fit_is_refused(described, monkeypatch):
    monkeypatch.setitem(DATASHEETS, "Small", Gpu(1e14, HALF, 4 * 10**9))
    with pytest.raises(ConfigError, match="of 1 .* not fit into 85% of the 3.7 GiB .*more memory"):
        described("tupe_large", "8xSmall")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--on", "eight"), "--on 'eight': give a number of GPUs and their name, such as 16x"),
        (("--on", "0xA10"), "--on '0xA10': give a number of GPUs"),
        (("--on", "2xA101"), "--on='A101' does not exist; did you mean A10"),
        (("--on", "2xA100"), "did you mean A100-SXM4-40GB or A100-SXM4-80GB or A100-PCIE"),
        (("--on", "2xA10", "--hostfile", "hosts"), "--on gives the GPUs already"),
    ],
)
def test_gpus_that_cannot_be_described_are_refused_in_one_line(words, message):
    with pytest.raises(ConfigError) as refused:
        main(["train", "tiny_cpu", "--dry-run", *words])
    assert message in str(refused.value) and "\n" not in str(refused.value)
