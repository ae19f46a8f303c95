"""The phases of made-up curves and the automatic target, worked out by hand."""

import json
import math

import pytest

from pretrain.config.errors import ConfigError
from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.runs import automatic_target
from pretrain.reports.compare.tables import arm_numbers, result_table
from tests.pretrain.commands.test_compare import runs, write_run

ENTROPY = 6.5
KNOWN = {"frequency_entropy": ENTROPY}
# What differs between the arms of a test.
ARMS = ((), ("--model.norm", "post"), ("--model.positions", "bert-r"), ("--model.dropout", "0.2"))


def arms(tmp_path, *curves, **launch):
    """Write an arm for each curve, which is a tuple of losses or a list of one for each seed."""
    folders = []
    for number, (words, curve) in enumerate(zip(ARMS, curves, strict=False)):
        for seed, losses in enumerate(curve if isinstance(curve, list) else [curve]):
            words_of_run = ("--name", f"arm{number}", "--seed", str(seed), *words)
            folder = tmp_path / f"arm{number}-{seed}"
            folders.append(write_run(folder, *words_of_run, losses=losses, **{**KNOWN, **launch}))
    return folders


def test_one_run_that_recorded_the_entropy_suffices(tmp_path):
    folders = arms(tmp_path, (6.6, 5.0), (6.6, 4.0))
    launches = folders[0] / "launches.jsonl"
    launch = json.loads(launches.read_text())
    del launch["frequency_entropy"]
    launches.write_text(json.dumps(launch) + "\n")
    comparison = compare(runs(*folders))
    assert comparison.entropy == ENTROPY
    assert not any("unigram entropy" in note for note in comparison.notes)


@pytest.mark.parametrize(
    ("ends", "target"),
    [
        ((6.0, 5.0, 4.5), 5.0),  # the baseline is not behind the plateau
        ((5.5, 5.0, 4.5), 5.5),  # at exactly 1 nat it is
        ((4.5, 4.0, 4.7), 4.7),  # the baseline is not the last
        ((5.6, 5.0, 5.7), 5.6),  # fewer than two: that of the baseline
        ((5.0, 5.6, 6.0), 5.0),
        ((math.nan, 5.0, 4.5), 5.0),
    ],
)
def test_the_automatic_target_lies_behind_the_plateau_where_two_arms_do(tmp_path, ends, target):
    folders = arms(tmp_path, *((7.0, 6.0, end) for end in ends))
    comparison = compare(runs(*folders))
    assert comparison.target == target
    if math.isfinite(ends[0]):
        assert automatic_target(comparison.arms, None) == ends[0]


def test_the_automatic_target_is_the_upper_median_over_seeds(tmp_path):
    curves = [[(7.0, end) for end in ends] for ends in ((4.0, 4.4), (4.3, 4.1, 4.2))]
    assert compare(runs(*arms(tmp_path, *curves))).target == 4.4
    # Half of the runs of the first arm diverged: it has no end behind the plateau.
    curves[0][1] = (7.0, math.inf)
    assert compare(runs(*arms(tmp_path / "diverged", *curves))).target == 4.2
    curves[1][:2] = [(7.0, math.inf)] * 2
    with pytest.raises(ConfigError, match="most runs of every arm diverged; give tupelo"):
        compare(runs(*arms(tmp_path / "lost", *curves)))


def test_an_arm_on_the_plateau_gets_no_share_even_of_a_target_that_it_reached(tmp_path):
    folders = arms(tmp_path, (6.6, 6.3), (6.6, 5.0), (6.6, 4.0))
    comparison = compare(runs(*folders), "6.4")
    stayed, *others = comparison.arms
    assert comparison.left_plateau(stayed, "step") is None
    assert comparison.reached(stayed, "step") is not None
    assert {comparison.share(pair, "step") for pair in comparison.pairs} == {None}
    numbers = [arm_numbers(comparison, arm) for arm in comparison.arms]
    assert [one["step_below_entropy"] is None for one in numbers] == [True, False, False]
    # 6.2 is 1/4 of the way from 6.6 to 5.0.
    assert numbers[1]["step_below_entropy"] == pytest.approx(12.5)
    assert all("%" not in cell for row in result_table(comparison).rows for cell in row.values())


def test_of_different_entropies_the_lowest_counts(tmp_path):
    low = arms(tmp_path / "low", (6.6, 5.0), frequency_entropy=6.25)
    high = arms(tmp_path / "high", (6.6, 5.0), (6.6, 4.0))[1:]
    assert compare(runs(*low, *high)).entropy == 6.25
