"""The tables of a comparison, worked out by hand."""

import math

from pretrain.commands.compare import in_text
from pretrain.compare.convergence import compare
from pretrain.compare.tables import cost_table, end_table, pair_table
from tests.pretrain.commands.test_compare import row_of, runs
from tests.pretrain.compare.test_headline import BERT, DROP, POST, arm

STAYED = (6.6, 6.5, 6.4, 6.3)
LEFT = (6.6, 5.8, 5.2, 5.0)
SOONER = (6.6, 5.6, 5.0, 4.5)
LATER = (6.6, 5.8, 5.4, 4.8)


def four_arms(tmp_path, *curves, **changes):
    """Write the arms of the main comparison, of which the entropy is 6.5."""
    recipes = {
        "bert_a": (*BERT, *POST),
        "bert_r": ("--model.positions", "bert-r"),
        "tupe_r": ("--model.positions", "tupe-r"),
        "tupe_r_pld": ("--model.positions", "tupe-r", *DROP),
    }
    return [
        folder
        for (name, words), losses in zip(recipes.items(), curves, strict=False)
        for folder in arm(
            tmp_path, name, *words, losses=losses, **{"frequency_entropy": 6.5, **changes}
        )
    ]


def test_an_arm_on_the_plateau_has_no_share(tmp_path):
    """Even where the target is above the end of the plateau, and the arm reached it."""
    comparison = compare(runs(*four_arms(tmp_path, STAYED, LEFT, SOONER)), "6.35")
    for name in ("bert_r", "tupe_r"):
        row = row_of(pair_table(comparison), f"{name}\nagainst bert_a")
        assert {row["steps"], row["FLOPs"], row["time"]} == {"-"}
    assert row_of(cost_table(comparison), "bert_a")["steps"] == "never"


def test_phases_are_rows_of_the_costs(tmp_path):
    comparison = compare(runs(*four_arms(tmp_path, STAYED, LEFT, SOONER, LATER)), "4.9")
    table = cost_table(comparison)
    assert table.headers == ["arm", "phase", "steps", "tokens", "FLOPs", "time"]
    stayed, left, sooner = (row_of(table, name) for name in ("bert_a", "bert_r", "tupe_r"))
    assert (stayed["phase"], stayed["steps"]) == ("off the plateau", "never")
    assert left["phase"].split("\n") == ["off the plateau", "from there"]
    assert left["steps"].split("\n") == ["15", "not reached"]
    # 6.2 is 2/5 of the way from 6.6 to 5.6, and 4.9 is 1/5 of that from 5.0 to 4.5.
    assert sooner["phase"].split("\n") == ["off the plateau", "from there", "in all"]
    assert sooner["steps"].split("\n") == ["14", "18", "32"]
    assert "ends 0.3 nats below the unigram entropy, 6.500" in table.remark
    unknown = compare(runs(*four_arms(tmp_path / "x", STAYED, LEFT, frequency_entropy=None)), "6.4")
    assert cost_table(unknown).headers == ["arm", "steps", "tokens", "FLOPs", "time"]
    assert row_of(cost_table(unknown), "bert_a")["steps"] == "30" and not cost_table(unknown).remark


def test_a_plateau_left_before_the_first_evaluation_is_a_bound(tmp_path):
    comparison = compare(runs(*four_arms(tmp_path, (6.0, 5.0), (4.0, 3.0))), "5.5")
    first, second = (row_of(cost_table(comparison), name)["steps"] for name in ("bert_a", "bert_r"))
    assert first.split("\n") == ["<= 10", ">= 5", "15"]
    assert second.split("\n") == ["<= 10", "-", "<= 10"]


def test_what_lies_within_the_range_of_the_seeds_is_not_significant(tmp_path):
    base = arm(tmp_path, "base", ends=(3.9, 4.0, 4.1))
    same = arm(tmp_path, "same", *POST, ends=(3.8, 4.05, 4.2, 4.05), **{"speed": 10.0})
    better = arm(tmp_path, "better", *DROP, ends=(3.0, 3.1, 3.1, 3.2))
    table = pair_table(compare(runs(*base, *same, *better), "4.5"))
    # Crossings of 4.5: 30 + 10 * 0.5 / (5 - end).
    share = (30 + 5 / 0.95) / (30 + 5 / 1.0)
    row = row_of(table, "same\nagainst base")
    assert row["steps"] == f"{share:.0%}\nnot significant"
    assert row["time"] == f"{10 * share:.0%}"
    assert row["loss at end"] == "+0.050\nnot significant"
    # Two ranges of 3 and 4 values that do not overlap: 1 - 2 / 35 is less than 95 %.
    assert row_of(table, "better\nagainst base")["loss at end"] == "-0.900\nnot significant"
    more = arm(tmp_path / "more", "better", *DROP, ends=(3.0, 3.1, 3.1, 3.2, 3.3))
    (pair,) = (found := compare(runs(*base, *more), "4.5")).pairs
    assert pair.significance_at_end == "significant"
    row = row_of(pair_table(found), "better\nagainst base")
    assert row["loss at end"].endswith("\nsignificant")


def test_losses_that_are_not_finite_are_words(tmp_path):
    base = arm(tmp_path, "base", ends=(4.0, 4.1))
    lost = arm(tmp_path, "lost", *POST, ends=(math.nan, math.inf))
    half = arm(tmp_path, "half", *DROP, ends=(4.0, 4.05, math.nan))
    comparison = compare(runs(*base, *lost, *half), "5.5")
    text = in_text(comparison, 80)
    assert "nan" not in text.replace("is not a number", "").replace("significant", "")
    assert "inf" not in text.replace("infinite", "")
    assert [row[3] for row in end_table(comparison).rows] == ["4.050", "diverged", "4.050"]


def test_the_end_of_an_unfinished_run_is_no_result(tmp_path):
    base = arm(tmp_path, "base")
    short = arm(tmp_path, "short", *POST, losses=(6.0, 4.5), finished=False)
    comparison = compare(runs(*base, *short), "5.0")
    assert row_of(pair_table(comparison), "short\nagainst base")["loss at end"] == "-"
    assert any("short-0 is not finished: its last" in note for note in comparison.notes)


def test_an_end_above_guessing_is_noted(tmp_path):
    base = arm(tmp_path, "base", losses=(6.0, 4.5))
    high = arm(tmp_path, "high", *POST, losses=(6.0, 20_556.0))
    (note,) = [one for one in compare(runs(*base, *high), "5.0").notes if "guessing" in one]
    assert "high-0 ends above" in note and note.endswith("among all words: it diverged")


def test_a_target_passed_before_the_first_evaluation_is_a_bound(tmp_path):
    base = arm(tmp_path, "base")
    early = arm(tmp_path, "early", *POST, losses=(3.0, 2.9, 2.8, 2.7))
    comparison = compare(runs(*base, *early))
    assert row_of(pair_table(comparison), "early\nagainst base")["steps"] == "<= 25%"
    assert any("early-0 was already below 4.000" in note for note in comparison.notes)
    backwards = compare(runs(*early, *base), "4.0")
    assert row_of(pair_table(backwards), "base\nagainst early")["steps"] == "-"
