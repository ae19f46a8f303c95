"""Bootstrap intervals against scipy and every resample; ends at equal cost."""

import itertools
import json
import math
import statistics

import numpy
import pytest
from scipy.stats import bootstrap

from pretrain.__main__ import main
from pretrain.compare.bootstrap import bootstrap_interval
from pretrain.compare.convergence import compare
from pretrain.compare.pairs import median_interval
from pretrain.compare.run_files import DECISIONS
from pretrain.compare.runs import have_equal_flops, read_run
from pretrain.compare.tables import end_table
from tests.pretrain.commands.test_compare import row_of, runs, write_run
from tests.pretrain.compare.test_headline import BERT, DROP, arm

VALUES = [4.1, 3.7, 4.4, 3.9, 4.05, 4.3, 3.85, 4.2, 3.95, 4.6, 3.8]


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_of_few_values_every_resample_counts(n):
    """The interval leaves out at most a share of 2.5 % of all resamples on either side."""
    low, high = bootstrap_interval(VALUES[:n])
    medians = [statistics.median(r) for r in itertools.product(VALUES[:n], repeat=n)]
    for end, beyond in ((low, lambda m: m < low), (high, lambda m: m > high)):
        assert end in medians
        assert sum(map(beyond, medians)) / len(medians) <= 0.025
    assert sum(m <= low for m in medians) / len(medians) >= 0.025
    assert sum(m >= high for m in medians) / len(medians) >= 0.025


@pytest.mark.parametrize("n", [3, 5, 7, 9, 11])
def test_the_interval_is_that_of_scipy(n):
    """Medians of an odd number of values are among them: chance moves an end to a neighbour."""
    found = bootstrap_interval(VALUES[:n])
    theirs = bootstrap(
        (VALUES[:n],),
        numpy.median,
        method="percentile",
        n_resamples=20_000,
        rng=numpy.random.default_rng(1),
    ).confidence_interval
    assert found == pytest.approx((theirs.low, theirs.high))


def test_of_few_values_it_is_the_range_as_that_of_the_sign_test():
    for n in (3, 5):
        interval = median_interval(VALUES[:n])
        assert bootstrap_interval(VALUES[:n]) == (interval.low, interval.high)


def test_a_run_that_diverged_is_an_end_without_bound(tmp_path):
    assert bootstrap_interval([1.0, math.inf, 2.0]) == (1.0, math.inf)
    folders = [*arm(tmp_path, "a", ends=(4.0, 4.2, 4.1)), *arm(tmp_path, "b", *BERT, ends=(5.0,))]
    folders += arm(tmp_path, "c", "--model.norm", "post", ends=(5.0, math.nan, 4.5))
    table = end_table(compare(runs(*folders), "6.0"))
    assert row_of(table, "a")["bootstrap"] == "4.000 - 4.200"
    assert row_of(table, "b")["bootstrap"] == "-"
    assert row_of(table, "c")["bootstrap"] == "4.500 or more"


def test_a_run_that_an_anomaly_stopped_ends_at_infinity_whatever_it_had_reached(tmp_path):
    """Its last evaluation, early and finite, is not its end; the other seeds are compared."""
    folders = [
        *arm(tmp_path, "a", ends=(4.0, 4.2, 4.1)),
        *arm(tmp_path, "b", *BERT, ends=(5.0,) * 3),
    ]
    stopped = folders[-1]
    (stopped / "result.json").unlink()
    lines = (stopped / "evals.jsonl").read_text().splitlines(keepends=True)
    (stopped / "evals.jsonl").write_text(lines[0])
    (stopped / "trouble").mkdir()
    (stopped / DECISIONS).write_text('{"action": "rewind"}\n{"action": "stop"}\n')
    comparison = compare(runs(*folders), "6.0")
    row = row_of(end_table(comparison), "b")
    assert row["bootstrap"] == "5.000 or more" and row["held-out loss"] == "5.000"
    said = " ".join(comparison.notes)
    assert f"{stopped} diverged: an anomaly stopped it" in said and "not finished" not in said
    assert "different training budgets" not in said


def with_cost(folder, flops):
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "expected_flops": flops}))
    return folder


@pytest.mark.parametrize(("flops", "are_equal"), [(30e9, True), (30.9e9, True), (31.1e9, False)])
def test_ends_at_equal_flops_are_compared(tmp_path, flops, are_equal):
    """A step of the first costs 1e9, one of the second less: they may differ by the former."""
    first = with_cost(write_run(tmp_path / "a", losses=(7.0, 6.0, 5.0)), 30e9)
    words = ("--name", "b", "--steps", "40")
    second = with_cost(write_run(tmp_path / "b", *words, losses=(7.0, 6.0, 5.0, 4.0)), flops)
    found = compare(runs(first, second), "6.0")
    (pair,) = found.pairs
    assert found.has_comparable_ends(pair) is are_equal
    about = "numbers of tokens, at equal FLOPs" if are_equal else "different training budgets"
    assert any(about in note for note in found.notes)


def test_costs_of_many_passes_and_ranks_that_are_nearly_equal_are_equal(tmp_path):
    """0.1 % of 30,000 steps are more than one of them."""
    costs = (30e12, 30.02e12, 30.04e12)
    folders = [write_run(tmp_path / str(cost), "--steps", "30000") for cost in costs]
    rows = [read_run(with_cost(folder, cost)) for folder, cost in zip(folders, costs, strict=True)]
    for run in rows:
        run.evaluations[-1]["step"] = 30_000
    assert have_equal_flops(rows[:2]) and not have_equal_flops(rows)


def test_equal_tokens_of_unequal_cost_are_said(tmp_path):
    first, second, third = (
        write_run(tmp_path / name, "--name", name, *words)
        for name, words in (("a", ()), ("b", DROP), ("c", ("--model.norm", "post")))
    )
    lines = [json.loads(line) for line in (second / "evals.jsonl").read_text().splitlines()]
    for line in lines:
        line["flops"] *= 0.75
    (second / "evals.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    about = [note for note in compare(runs(first, second, third)).notes if "FLOPs" in note]
    assert about == ["b took 75% of the FLOPs of a for equally many tokens"]


def test_that_arms_were_tuned_is_believed(tmp_path, capsys):
    folders = [*arm(tmp_path, "a"), *arm(tmp_path, "b", *BERT)]
    words = ["compare", *map(str, folders), "--target", "6.0"]
    main(words)
    assert "note: tuning unknown" in capsys.readouterr().out
    main([*words, "--tuned"])
    assert "tuning unknown" not in capsys.readouterr().out
