"""A dry run that measures: what it prints follows from what it measured."""

import re

import pytest

from data_prep.shards.format import open_shards
from pretrain.__main__ import main
from pretrain.config.errors import ConfigError


def measured(command, shards, *words, **launcher):
    """Measure tiny_cpu for a second and return status and output in one line."""
    given = ("train", "tiny_cpu", "--dry-run", "--measure", 1, "--engine.ds_config", "zero1_fp32")
    words = (*given, "--data.shards", shards, *words)
    status, output, errors = command.run(list(map(str, words)), **launcher)
    assert status in (0, 1) and "Traceback" not in errors, errors[-3000:]
    return status, " ".join(output.split())


def number(output, pattern):
    return float(re.search(pattern, output)[1].replace(",", ""))


def test_steps_and_tokens_of_given_hours_follow_from_the_measured_seconds(
    command, shards, tmp_path
):
    words = ("--hours", 0.1, "--run-folder", tmp_path / "run")
    status, output = measured(command, shards, *words)
    assert status == 0 and f"steps of sequences of {shards}" in output
    seconds = number(output, r"seconds per step ([\d.e-]+)")
    steps = number(output, r"tokens in all ([\d,]+)") / (8 * 32)
    assert steps == pytest.approx(0.1 * 3600 / seconds, rel=1e-3)  # printed with four digits
    assert number(output, r"tokens/s ([\d,]+)") == pytest.approx(8 * 32 / seconds, rel=1e-3)
    rows = open_shards(shards).split("train").num_sequences
    assert number(output, r"read ([\d.e+]+) times") == pytest.approx(steps * 8 / rows, rel=0.01)
    assert number(output, r"cost ([\d.]+) hours of this machine") == pytest.approx(0.1, rel=0.01)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--measure 9", "--measure belongs to --dry-run"),
        ("--on 2xA10", "--on belongs to --dry-run"),
        ("--dry-run --measure 9 --on 2xA10", "--measure takes steps here, and --on is for other"),
        ("--dry-run --measure 0", "--measure 0: give a number above 0, such as 60"),
        ("--dry-run --measure nan", "--measure nan: give a number above 0"),
        ("--dry-run --measure 9 --hours day", "hours='day': input should be a valid number"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused_in_one_line(words, message):
    with pytest.raises(ConfigError, match=message) as refused:
        main(["train", "tiny_cpu", *words.split()])
    assert "\n" not in str(refused.value)
