"""Intervals over paired seeds, and significance, against other computations of them."""

import itertools
import json
import math
import shutil
import statistics

import pytest
from scipy.stats import binom

from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.pairs import median_interval
from pretrain.reports.compare.tables import report_of, result_table
from tests.pretrain.commands.test_compare import row_of, runs
from tests.pretrain.reports.compare.test_report import POST, arm


@pytest.mark.parametrize("n", [*range(2, 21), 100])
def test_the_interval_of_the_median_is_the_narrowest_of_the_binomial(n):
    """Values 1 to n: an interval from the k-th lowest to the k-th highest is (k, n + 1 - k)."""
    found = median_interval([float(value) for value in range(n, 0, -1)])
    confidences = {k: 1 - 2 * binom.cdf(k - 1, n, 0.5) for k in range(1, n // 2 + 1)}
    k = max((k for k, confidence in confidences.items() if confidence >= 0.95), default=1)
    assert (found.low, found.high) == (k, n + 1 - k)
    assert found.confidence == pytest.approx(confidences[k], rel=1e-12)
    assert found.median == statistics.median(range(1, n + 1))
    assert found.num_pairs == n
    if n < 6:
        assert found.confidence == 1 - 2 ** (1 - n)


@pytest.mark.parametrize("values", [(1.0, 2.0, math.nan), (math.nan, 0.5), (math.inf, 2.0, 1.0)])
def test_a_value_that_is_not_known_can_be_any(values):
    found = median_interval(values)
    unknown = [number for number, value in enumerate(values) if math.isnan(value)]
    medians = set()
    for guesses in itertools.product([-math.inf, 0.0, 1.5, math.inf], repeat=len(unknown)):
        guessed = list(values)
        for number, guess in zip(unknown, guesses, strict=True):
            guessed[number] = guess
        medians.add(statistics.median(guessed))
        assert found.low <= min(guessed) and max(guessed) <= found.high
    assert found.median == (medians.pop() if len(medians) == 1 else None)


def paired(tmp_path, ends, others, **changes):
    """Return a comparison of two arms of seeds 0, 1, ... that end with these losses, at 4.5."""
    folders = [*arm(tmp_path, "base", ends=others), *arm(tmp_path, "new", *POST, ends=ends)]
    return compare(runs(*folders), changes.get("target", "4.5"))


def test_arms_of_equal_seeds_are_compared_seed_by_seed(tmp_path):
    """The ranges overlap, but each seed ends lower: paired, that is a difference."""
    ends, others = (3.8, 3.0, 3.4), (4.2, 3.2, 3.5)
    comparison = paired(tmp_path, ends, others)
    (pair,) = comparison.pairs
    difference = pair.paired_difference_at_end
    assert (difference.low, difference.median, difference.high) == pytest.approx((-0.4, -0.2, -0.1))
    assert difference.confidence == 0.75
    assert pair.difference_at_end == difference.median
    # From 5 to the end in the steps from 30 to 40.
    ratios = sorted(
        (30 + 5 / (5 - end)) / (30 + 5 / (5 - other))
        for end, other in zip(ends, others, strict=True)
    )
    share = comparison.paired_share(pair, "step")
    assert [share.low, share.median, share.high] == pytest.approx(ratios)
    assert comparison.share(pair, "step") == share.median
    row = row_of(result_table(comparison), "new")
    assert row["difference"] == "-0.200\n-0.400 to -0.100, 3 seeds\ntoo few seeds to test"
    steps = f"{comparison.reached(pair.arm, 'step'):.0f}"
    shares = f"{ratios[1]:.0%}\n{ratios[0]:.0%} to {ratios[2]:.0%}, 3 seeds"
    assert row["steps to target"] == f"{steps}\n{shares}"
    assert "(confidence 75.0%, 3 pairs)" in result_table(comparison).remark
    six = paired(tmp_path / "six", (3.8,) * 6, (4.0,) * 6)
    assert six.pairs[0].significance_at_end == "significant"
    six = paired(tmp_path / "mixed", (3.8,) * 6, (4.0,) * 5 + (3.7,))
    assert six.pairs[0].significance_at_end == "not significant"
    assert "seeds" not in row_of(result_table(six), "new")["difference"]
    folders = [*arm(tmp_path / "twice", "base"), *arm(tmp_path / "twice", "new", *POST)]
    copies = [shutil.copytree(folder, folder.with_suffix(".copy")) for folder in folders]
    (twice,) = compare(runs(*folders, *copies), "5").pairs
    assert twice.significance_at_end == "a seed twice"


def test_seeds_that_are_not_the_same_are_not_paired(tmp_path):
    base = arm(tmp_path, "base", ends=(4.2, 3.2, 3.5))
    for number, ends in enumerate([(3.8, 3.0), (3.8, 3.0, 3.4, 3.5)]):
        comparison = compare(runs(*base, *arm(tmp_path / str(number), "new", *POST, ends=ends)))
        (pair,) = comparison.pairs
        assert pair.paired_difference_at_end is None
        assert comparison.paired_share(pair, "step") is None
        assert row_of(result_table(comparison), "new")["difference"].endswith("\nother seeds")
    twice = arm(tmp_path / "twice", "new", *POST, ends=(3.8, 3.0, 3.4))
    for folder in twice:
        settings = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(settings | {"seed": 0}))
    (pair,) = compare(runs(*base, *twice)).pairs
    assert pair.by_seed == []


def test_a_seed_that_never_got_there_counts_as_later_than_all(tmp_path):
    comparison = paired(tmp_path, (3.0, 3.0, 5.0), (4.0, 4.0, 4.0))
    (pair,) = comparison.pairs
    share = comparison.paired_share(pair, "step")
    assert share.median == pytest.approx(32.5 / 35) and share.high == math.inf
    steps = row_of(result_table(comparison), "new")["steps to target"]
    assert steps.endswith("\n93%\n93% or more, 3 seeds")
    _, numbers = report_of(comparison).numbers
    assert numbers["step_share"] == pytest.approx(32.5 / 35)
    assert numbers["step_share_high"] == math.inf and numbers["difference_confidence"] == 0.75
    # The other way: it is the other one that never did.
    turned = paired(tmp_path / "turned", (4.0, 4.0, 4.0), (3.0, 3.0, 5.0))
    steps = row_of(result_table(turned), "new")["steps to target"]
    assert steps.endswith("\n108%\n108% or less, 3 seeds")
    # The other one never did with half of the seeds: no mean with what is not known.
    (pair,) = (half := paired(tmp_path / "half", (4.0, 4.0), (4.0, 5.0))).pairs
    assert half.share(pair, "step") is None
    assert "%" not in row_of(result_table(half), "new")["steps to target"]
    # Of the same seed both never did: any ratio is possible.
    (pair,) = (comparison := paired(tmp_path / "both", (3.0, 5.0), (4.0, 5.0))).pairs
    assert comparison.share(pair, "step") is None
    assert comparison.reached(pair.arm, "step") is None
    # Most runs of the baseline never did: no share of what they needed is known.
    (pair,) = (comparison := paired(tmp_path / "base", (3.0, 3.0), (5.0, 5.0))).pairs
    assert comparison.share(pair, "step") is None


def test_a_seed_of_both_that_diverged_leaves_the_difference_open(tmp_path):
    comparison = paired(tmp_path, (3.0, math.nan, 3.2), (4.0, math.inf, 4.1), target="5.5")
    (pair,) = comparison.pairs
    assert pair.difference_at_end is None
    assert row_of(result_table(comparison), "new")["difference"] == "-"
