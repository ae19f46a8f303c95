"""The result in words, and which arms are compared, worked out by hand."""

import math
from pathlib import Path

import pytest

from pretrain.commands.compare import in_text
from pretrain.compare.convergence import compare, verdict
from pretrain.compare.headline import WITHIN, headline
from pretrain.compare.tables import pair_table
from tests.pretrain.commands.test_compare import row_of, runs, write_run

POST = ("--model.norm", "post")
BERT = ("--model.positions", "bert-a")
DROP = ("--layer_drop.schedule", "progressive", "--layer_drop.theta_bar", "0.6")


def arm(tmp_path, name, *words, ends=(4.0,), **changes):
    """Write runs of an arm, a seed each, that end with these losses after 7, 6 and 5."""
    return [
        write_run(
            tmp_path / f"{name}-{seed}",
            *("--name", name, "--seed", str(seed), *words),
            **{"losses": (7.0, 6.0, 5.0, end), **changes},
        )
        for seed, end in enumerate(ends)
    ]


def sentences(*folders, target="auto"):
    return headline(compare(runs(*folders), target))


def pairs(*folders):
    return [(pair.arm.name, pair.against.name) for pair in compare(runs(*folders)).pairs]


@pytest.mark.parametrize(
    ("values", "others", "expected"),
    [
        ([3.0], [4.0], "unknown"),
        ([3.0], [3.0], "unknown"),
        ([3.0, 3.2], [3.1, 4.0], "within"),
        ([3.0, 3.2], [3.2, 4.0], "within"),
        ([3.0, 3.2], [3.3, 4.0], "beyond"),
        ([5.0, 6.0], [3.3, 4.0], "beyond"),
        ([3.5], [3.3, 4.0], "within"),
        ([3.2], [3.3, 4.0], "beyond"),
        ([3.0, math.inf], [4.0, 5.0], "within"),
        ([5.1, math.inf], [4.0, 5.0], "beyond"),
    ],
)
def test_a_difference_is_one_where_the_seeds_do_not_overlap(values, others, expected):
    assert verdict(values, others) == expected


def test_layer_drop_is_compared_with_its_own_arm_at_full_depth(tmp_path):
    arms = {
        "bert": arm(tmp_path, "bert", *BERT),
        "bert_drop": arm(tmp_path, "bert_drop", *BERT, *DROP),
        "tupe": arm(tmp_path, "tupe"),
        # Nearer to bert_drop by the number of settings, but tupe is its model at full depth.
        "tupe_drop": arm(tmp_path, "tupe_drop", *DROP),
    }
    assert pairs(*(folder for folders in arms.values() for folder in folders)) == [
        ("bert_drop", "bert"),
        ("tupe", "bert"),
        ("tupe_drop", "bert"),
        ("tupe_drop", "tupe"),
    ]


def test_the_nearest_arm_differs_in_the_fewest_settings(tmp_path):
    first = arm(tmp_path, "first", *BERT, *POST)
    pre = arm(tmp_path, "pre")
    both = arm(tmp_path, "both", *POST)
    assert pairs(*first, *pre, *both) == [("pre", "first"), ("both", "first")]
    other = arm(tmp_path, "other", "--model.dropout", "0.1")
    found = compare(runs(*first, *pre, *other))
    assert [(pair.arm.name, pair.against.name) for pair in found.pairs][2:] == [("other", "pre")]
    row = row_of(pair_table(found), "other\nagainst pre")
    assert row["what differs"] == "model.dropout 0.0 -> 0.1"


def test_what_lies_within_the_range_of_the_seeds_is_called_no_difference(tmp_path):
    base = arm(tmp_path, "base", ends=(3.9, 4.0, 4.1))
    same = arm(tmp_path, "same", *POST, ends=(3.8, 4.05, 4.2), **{"speed": 10.0})
    better = arm(tmp_path, "better", *DROP, ends=(3.0, 3.1, 3.2))
    _, _, on_same, on_better = sentences(*base, *same, *better, target="4.5")
    # Crossings of 4.5: 30 + 10 * 0.5 / (5 - end).
    share = (30 + 5 / 0.95) / (30 + 5 / 1.0)
    assert on_same == (
        f"same against base: 4.500 nats after {share:.0%} of the steps and {share:.0%} of the "
        f"FLOPs ({WITHIN}), and {10 * share:.0%} of the time; at the end 4.050 against 4.000 nats "
        f"({WITHIN})."
    )
    assert WITHIN not in on_better and "at the end 3.100 against 4.000 nats." in on_better
    rows = pair_table(compare(runs(*base, *same), "4.5"))
    assert row_of(rows, "same\nagainst base")["steps"].endswith("\nin range")


def test_one_seed_each_is_no_evidence_of_a_difference(tmp_path):
    base, other = arm(tmp_path, "base"), arm(tmp_path, "other", *POST, ends=(3.0,))
    (*_, sentence) = sentences(*base, *other)
    assert sentence.endswith("(one seed each: whether this is a difference is unknown).")


def test_tokens_are_named_where_they_are_not_the_steps(tmp_path):
    base = arm(tmp_path, "base")
    other = arm(tmp_path, "other", "--batch.global_sequences", "16", losses=(7.0, 4.0))
    assert not any("tokens" in sentence for sentence in sentences(*base, *other))
    lines = (other[0] / "evals.jsonl").read_text()
    (other[0] / "evals.jsonl").write_text(
        lines.replace('"tokens": 2560', '"tokens": 5121').replace(
            '"tokens": 5120', '"tokens": 9999'
        )
    )
    assert "98% of the tokens" in sentences(*base, *other)[2]


def test_an_arm_that_never_gets_there_is_said_to(tmp_path):
    base = arm(tmp_path, "base", ends=(4.0, 4.1, 4.2))
    never = arm(tmp_path, "never", *POST, ends=(5.0, 6.0))
    rarely = arm(tmp_path, "rarely", *DROP, ends=(4.0, 5.0, 6.0))
    found = sentences(*base, *never, *rarely)
    assert "never against base: never did not reach 4.100 nats; at the end 5.500" in found[2]
    assert "rarely did not reach 4.100 nats (1 of its 3 runs did);" in found[3]
    assert "neither reached 3.500 nats;" in sentences(*base, *never, target="3.5")[2]


def test_losses_that_are_not_finite_are_words(tmp_path):
    base = arm(tmp_path, "base", ends=(4.0, 4.1))
    lost = arm(tmp_path, "lost", *POST, ends=(math.nan, math.inf))
    half = arm(tmp_path, "half", *DROP, ends=(4.0, 4.05, math.nan))
    comparison = compare(runs(*base, *lost, *half), "5.5")
    _, _, on_lost, on_half, *_ = headline(comparison)
    assert on_lost.endswith("; lost diverged before the end.")
    assert f"at the end 4.050 against 4.050 nats ({WITHIN})" in on_half
    text = in_text(comparison, 80)
    assert "nan" not in text.replace("is not a number", "") and "inf" not in text.replace(
        "infinite", ""
    )
    assert "diverged" in text.partition("At the end")[2].partition("Arm against")[0]


def test_a_baseline_that_lost_a_seed_says_so(tmp_path):
    base = arm(tmp_path, "base", ends=(4.0, 4.2, math.nan))
    other = arm(tmp_path, "other", *POST)
    assert sentences(*base, *other, target="5.5")[1] == (
        "base (the baseline) ends at 4.200 nats (4.000 - 4.200 over 2 seeds), 1 of 3 diverged, "
        "after 40 steps."
    )


def test_the_end_of_an_unfinished_run_is_no_result(tmp_path):
    base = arm(tmp_path, "base")
    short = arm(tmp_path, "short", *POST, losses=(6.0, 4.5), finished=False)
    comparison = compare(runs(*base, *short), "5.0")
    assert (
        "the ends are not compared: the budgets differ, or a run is not finished"
        in headline(comparison)[2]
    )
    assert row_of(pair_table(comparison), "short\nagainst base")["loss at end"] == "-"
    assert any(
        "short-0 is not finished: its last evaluation, after step 20" in note
        for note in comparison.notes
    )
    assert headline(compare(runs(*short, *base)))[1] == (
        "short (the baseline) is not finished, and stands at 4.500 nats after 20 steps."
    )


def test_a_target_passed_before_the_first_evaluation_is_a_bound(tmp_path):
    base = arm(tmp_path, "base")
    early = arm(tmp_path, "early", *POST, losses=(3.0, 2.9, 2.8, 2.7))
    comparison = compare(runs(*base, *early))
    assert "4.000 nats after at most 25% of the steps" in headline(comparison)[2]
    assert row_of(pair_table(comparison), "early\nagainst base")["steps"] == "<= 25%"
    assert any("early-0" in note and "was below 4.000" in note for note in comparison.notes)
    backwards = compare(runs(*early, *base), "4.0")
    assert "early was below 4.000 nats at its first evaluation: no share" in headline(backwards)[2]
    assert row_of(pair_table(backwards), "base\nagainst early")["steps"] == "-"


def test_one_arm_is_not_compared_with_itself(tmp_path):
    assert sentences(*arm(tmp_path, "alone", ends=(4.0, 4.1))) == [
        "2 runs of 1 arm, compared at a held-out loss of 4.100 nats; they differ in the seed only.",
        "alone ends at 4.050 nats (4.000 - 4.100 over 2 seeds) after 40 steps.",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_everything_fits_the_terminal(tmp_path, width, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arms = [
        arm(Path(), f"an_arm_of_the_paper_{number}", *words, ends=(4.0, 4.1))
        for number, words in enumerate([(), POST, BERT, DROP, (*POST, *BERT), (*BERT, *DROP)])
    ]
    text = in_text(compare(runs(*(folder for folders in arms for folder in folders))), width)
    assert max(map(len, text.split("\n"))) <= width


def test_words_come_first_then_tables_then_notes_with_the_most_severe_first(tmp_path):
    base = arm(tmp_path, "base")
    other = arm(
        tmp_path,
        "other",
        *POST,
        losses=(7.0, math.nan, 3.0),
        threads=2,
        commit="def",
        finished=False,
    )
    text = in_text(compare(runs(*base, *other), "5.0"), 500)
    order = [
        *("2 runs of 2 arms", "other against base:", "Cost of reaching", "At the end"),
        *("Arm against arm", "note: time is left out", "diverged: a held-out", "is not finished:"),
        *("different training budgets", "one seed only", "different commits"),
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
