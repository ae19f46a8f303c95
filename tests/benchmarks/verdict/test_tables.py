"""The verdict's statistics and tables against SciPy and numbers by hand."""

import math
import runpy
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.benchmarks.verdict.conftest import ROOT, run_of, study_of


def test_the_interval_of_paired_seeds_is_that_of_scipy():
    from intervals import paired_mean

    ours, theirs = {1: 4.0, 2: 4.2, 3: 4.1, 9: 0.0}, {1: 4.3, 2: 4.3, 3: 4.2, 8: 9.0}
    found = paired_mean(ours, theirs)
    test = stats.ttest_rel([4.0, 4.2, 4.1], [4.3, 4.3, 4.2])
    interval = test.confidence_interval(0.95)
    assert found.num_pairs == 3
    assert found.p_value == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert paired_mean({1: 1.0}, {2: 1.0}) is None
    assert paired_mean({1: 1.0}, {1: 2.0}).p_value == 1  # one pair has no interval
    assert paired_mean({1: math.inf, 2: 1.0}, {1: 1.0, 2: math.inf}) is None


def test_equal_differences_have_an_interval_of_no_width():
    from intervals import paired_mean

    found = paired_mean({1: 1.0, 2: 2.0}, {1: 0.5, 2: 1.5})
    assert (found.low, found.high, found.p_value) == (0.5, 0.5, 0.0)


def test_p_values_are_corrected_as_by_hand():
    from intervals import holm

    # Sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2 (not less than the one before), 0.5 x 1.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_an_answer_needs_a_p_value_that_is_corrected_for_the_other_questions():
    from tables import Question, answers

    ends = {"base": [5.0, 5.1, 5.2], "better": [4.9, 5.01, 5.13], "equal": [5.1, 5.0, 5.2]}
    study = study_of(
        *(run_of(arm, seed, [one]) for arm, found in ends.items() for seed, one in enumerate(found))
    )
    p_value = stats.ttest_rel(ends["better"], ends["base"]).pvalue
    assert p_value < 0.05 < 8 * p_value
    question = Question("Better?", "better", "base")
    assert f"| {p_value:.3f} | lower |" in answers(study, [question])
    others = [Question("Equal?", "equal", "base")] * 7
    table = answers(study, [question, *others])
    assert f"| {8 * p_value:.3f} | cannot tell |" in table and "| lower |" not in table


def test_a_question_may_compare_differences_of_arms():
    from tables import Question, answers

    ends = {
        "slow": [4.5, 4.6, 4.4],
        "slow_base": [4.8, 4.9, 4.6],
        "fast": [4.2, 4.1, 4.2],
        "fast_base": [4.3, 4.2, 4.4],
    }
    study = study_of(
        *(run_of(arm, seed, [one]) for arm, found in ends.items() for seed, one in enumerate(found))
    )
    lead_slow = np.subtract(ends["slow"], ends["slow_base"])
    lead_fast = np.subtract(ends["fast"], ends["fast_base"])
    mean = (lead_slow - lead_fast).mean()
    p_value = stats.ttest_rel(lead_slow, lead_fast).pvalue
    table = answers(study, [Question("Larger?", "slow - slow_base", "fast - fast_base")])
    assert f"| (`slow` - `slow_base`) - (`fast` - `fast_base`) | 3 | {mean:+.3f} (" in table
    assert f"| {p_value:.3f} |" in table


def test_a_question_may_compare_means_of_arms():
    from tables import Question, answers

    ends = {"a": [4.5, 4.6, 4.4], "b": [4.8, 4.9, 4.6], "c": [4.2, 4.1, 4.2], "d": [4.3, 4.2]}
    study = study_of(
        *(run_of(arm, seed, [one]) for arm, found in ends.items() for seed, one in enumerate(found))
    )
    ours, theirs = np.add(ends["a"], ends["b"]) / 2, np.add(ends["c"][:2], ends["d"]) / 2
    test = stats.ttest_rel(ours[:2], theirs)
    table = answers(study, [Question("Higher?", "a, b", "c, d")])
    words = "mean of `a`, `b` - mean of `c`, `d`"
    assert f"| {words} | 2 | {(ours[:2] - theirs).mean():+.3f} (" in table
    assert f"| {test.pvalue:.3f} |" in table


def test_a_question_about_nothing_is_refused():
    from tables import Question, answers, ends

    study = study_of(run_of("a", 1, [5.0]), run_of("b", 2, [5.0]))
    with pytest.raises(SystemExit, match="toy has no runs of c; its arms: a, b"):
        answers(study, [Question("Lower?", "a", "c")])
    with pytest.raises(SystemExit, match="a and b have no seed in common"):
        answers(study, [Question("Lower?", "a", "b")])
    with pytest.raises(SystemExit, match="no runs of c"):
        ends(study, "c")


def test_the_number_of_pairs_stands_where_runs_have_no_partner():
    from tables import ends

    study = study_of(
        *(run_of("base", seed, [5.0 + seed / 10]) for seed in (1, 2, 3)),
        *(run_of("other", seed, [5.0]) for seed in (2, 3, 4)),
    )
    assert "; 2 pairs) |" in ends(study, "base")


def test_tokens_are_a_bound_where_a_run_was_behind_the_plateau_from_its_first_evaluation():
    """The plateau ends at 6.7 nats; a step has 1,000 tokens."""
    from tables import tokens

    seen, unseen = run_of("a", 1, [6.9, 6.5]), run_of("a", 2, [6.5, 6.4])
    study = study_of(seen, unseen)
    assert tokens(study, [seen]) == "0.15" and tokens(study, [unseen]) == "<= 0.10"
    assert tokens(study, [run_of("a", 3, [6.9, 6.8])]) == "not left"


def test_the_steps_from_the_plateau_to_a_target_are_interpolated_and_averaged_as_ratios():
    from tables import speed

    # The plateau ends at 6.7: half way between 100 and 200 steps; the target 6.0 at 300 or 500.
    slow = [6.9, 6.5, 6.4, 6.2, 6.0]
    study = study_of(
        *(run_of("slow", seed, slow) for seed in (1, 2)),
        run_of("fast", 1, [6.9, 6.5, 6.0, 5.9]),
        run_of("fast", 2, [6.9, 6.5, 6.4, 6.0]),
        run_of("never", 1, [6.9, 6.8]),
        run_of("elsewhere", 3, slow),
    )
    logs = [math.log(150 / 350), math.log(250 / 350)]
    reach = stats.t.ppf(0.975, 1) * stats.sem(logs)
    mean, low, high = (math.exp(statistics.fmean(logs) + one * reach) for one in (0, -1, 1))
    table = speed(study, "slow", [6.0])
    assert f"| `fast` | {mean:.0%} ({low:.0%} - {high:.0%}) |" in table
    assert "| `never` | not reached |" in table and "| `elsewhere` | - |" in table
    assert "| `fast` | not reached by the baseline |" in speed(study, "never", [6.0])
    with pytest.raises(SystemExit, match="reaches 6.8 before it has left the plateau"):
        speed(study, "slow", [6.8])


def test_scores_of_minimal_pairs_are_means_over_paradigms_and_compared_by_seed(tmp_path):
    from tables import Question, answers, scores

    main = runpy.run_path(str(ROOT / "benchmarks" / "verdict" / "__main__.py"))
    file = tmp_path / "paradigms.csv"
    file.write_text("run,accuracy\na-seed1,0.5\na-seed1,0.75\na-seed2,1\n")
    assert main["scores_of_pairs"](f"BLiMP={file}") == {
        "a-seed1": {"BLiMP": 62.5},
        "a-seed2": {"BLiMP": 100.0},
    }
    with pytest.raises(SystemExit, match="there is no such file"):
        main["scores_of_pairs"]("BLiMP=nowhere.csv")
    ours, theirs = [61.0, 64.0, 62.0], [58.0, 60.0, 61.0]
    study = study_of(
        *(scored(run_of("base", seed, [5.0]), one) for seed, one in enumerate(theirs)),
        *(scored(run_of("better", seed, [5.0]), one) for seed, one in enumerate(ours)),
        run_of("unknown", 0, [5.0]),
    )
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    table = scores(study, "base")
    assert "| `base` | 59.7 |" in table and "| `unknown` | - |" in table
    assert f"| `better` | 62.3; +2.7 ({interval.low:+.1f} to {interval.high:+.1f}) |" in table
    assert scores(study, "base", ["BLiMP"]) == table
    with pytest.raises(SystemExit, match="no scores .'CoLA'.; its scores: BLiMP"):
        scores(study, "base", ["CoLA"])
    p_value = stats.ttest_rel(ours, theirs).pvalue
    asked = answers(study, [Question("Better?", "better", "base", "BLiMP")])
    assert "| points, 95 % interval |" in asked
    span = f"({interval.low:+.1f} to {interval.high:+.1f})"
    assert f"| 3 | +2.7 {span} | {p_value:.3f} | cannot tell |" in asked


def test_by_the_clock_an_arm_is_compared_at_the_end_of_the_baseline(drawn):
    import figures
    from tables import clock

    # The baseline ends at 5.0 after 60 and 100 s: the arm is there half way from 10 to 30 s, and
    # after 10 s: 3 and 10 times sooner, the geometric mean is sqrt(30).
    study = study_of(
        replace(run_of("base", 1, [6.0, 5.0]), seconds=(30.0, 60.0)),
        replace(run_of("base", 2, [6.0, 5.0]), seconds=(50.0, 100.0)),
        replace(run_of("ours", 1, [5.5, 4.5]), seconds=(10.0, 30.0)),
        replace(run_of("ours", 2, [5.0, 4.5]), seconds=(10.0, 30.0)),
        replace(run_of("worse", 1, [5.5]), seconds=(60.0,)),
        replace(run_of("ours", 3, [5.1], is_trial=True, peak=0.1), seconds=(9.0,)),
        replace(run_of("ours", 3, [5.2], is_trial=True, peak=0.2), seconds=(9.0,)),
    )
    table = clock(study, "base")
    assert "| `ours` | 2 | peak 0.1: 5.100; peak 0.2: 5.200 |" in table
    logs = [math.log(3), math.log(10)]
    reach = stats.t.ppf(0.975, 1) * stats.sem(logs)
    low, high = math.exp(statistics.fmean(logs) - reach), math.exp(statistics.fmean(logs) + reach)
    assert f"| {math.sqrt(30):.1f} times ({low:.1f} - {high:.1f}) |" in table
    assert "| not reached |" in table
    figures.clock(study, Path())
    lines = [line.get_xydata().tolist() for line in drawn()[0].lines]
    assert [[0.5, 6.0], [1.0, 5.0]] in lines and [[1.0, 5.5]] in lines


def test_seconds_of_paired_seeds_are_compared_by_their_ratios():
    from tables import seconds

    study = study_of(
        replace(run_of("base", 1, [6.0, 5.0]), seconds=(30.0, 60.0)),
        replace(run_of("base", 2, [6.0, 5.0]), seconds=(50.0, 100.0)),
        replace(run_of("ours", 1, [6.0, 5.0]), seconds=(20.0, 54.0), flops=0.5e12),
        replace(run_of("ours", 2, [6.0, 5.0]), seconds=(20.0, 40.0), flops=0.7e12),
    )
    logs = [math.log(0.9), math.log(0.4)]  # the geometric mean is 0.6
    reach = stats.t.ppf(0.975, 1) * stats.sem(logs)
    low, high = (math.exp(statistics.fmean(logs) + sign * reach) for sign in (-1, 1))
    assert f"| `ours` | 60.0% | 60.0% ({low:.1%} - {high:.1%}) |" in seconds(study, "base")


def scored(run, score):
    return replace(run, scores={"BLiMP": score})


def test_the_error_over_held_out_rows_is_that_of_drawing_batches_anew():
    from held_out import compare

    generator = np.random.default_rng(0)
    numbers = generator.integers(400, 900, 60)  # predictions of each batch
    base = generator.normal(4, 0.3, 60)  # some rows are harder for all
    shift = generator.normal(0.1, 0.02, 60)

    def losses(extra):
        noise = [generator.normal(0, 0.01, 60) for _ in range(3)]
        return {
            seed: list(zip(base + extra + one, numbers.tolist(), strict=True))
            for seed, one in enumerate(noise)
        }

    ours, theirs = losses(shift), losses(0)
    found = compare(ours, theirs)
    by_batch = np.subtract(*(np.array(list(side.values())) for side in (ours, theirs)))[:, :, 0]
    by_batch = by_batch.mean(0)  # over seeds
    draws = generator.integers(0, 60, (4000, 60))
    again = (by_batch * numbers)[draws].sum(1) / numbers[draws].sum(1)
    assert found["nats"] == pytest.approx(np.average(by_batch, weights=numbers), abs=1e-4)
    assert found["error_over_rows"] == pytest.approx(again.std(), rel=0.05)
    assert found["predictions"] == numbers.sum() and found["seeds"] == 3
