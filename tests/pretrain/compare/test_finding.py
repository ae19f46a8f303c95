"""What a comparison says that it found, worked out by hand."""

import math

import pytest

from pretrain.commands.compare import in_text
from pretrain.compare.convergence import compare
from pretrain.compare.finding import WITHIN, finding
from pretrain.compare.tables import cost_table, end_table, pair_table
from tests.pretrain.commands.test_compare import row_of, runs
from tests.pretrain.compare.test_headline import BERT, DROP, POST, arm

TUNING = "how well each arm is tuned is not known."


def found(*folders, target="auto"):
    """Return the two sentences."""
    result, limits = finding(compare(runs(*folders), target))
    return result, limits


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


STAYED = (6.6, 6.5, 6.4, 6.3)
LEFT = (6.6, 5.8, 5.2, 5.0)
SOONER = (6.6, 5.6, 5.0, 4.5)
LATER = (6.6, 5.8, 5.4, 4.8)


def test_the_main_comparison_in_two_sentences(tmp_path):
    result, limits = found(*four_arms(tmp_path, STAYED, LEFT, SOONER, LATER))
    # To 5.0: bert_r 40 steps, tupe_r 30, tupe_r_pld 30 + 10 * 2 / 3.
    assert result == (
        "tupe_r reached 5.000 nats with 75% of the steps, FLOPs and time of bert_r, and ended "
        "0.500 nats lower; tupe_r_pld reached 5.000 nats with 122% of the steps, FLOPs and time of "
        "tupe_r, and ended 0.300 nats higher."
    )
    assert limits == (
        "But bert_a never left the plateau of word frequencies within 40 steps, with one seed each "
        f"any difference may be chance, and {TUNING}"
    )


def test_an_arm_on_the_plateau_is_quoted_in_no_share(tmp_path):
    """Even where the target is above the end of the plateau, and the arm reached it."""
    comparison = compare(runs(*four_arms(tmp_path, STAYED, LEFT, SOONER)), "6.35")
    text = in_text(comparison, 500)
    result, limits = finding(comparison)
    assert "bert_a" not in result and "bert_a never left the plateau" in limits
    assert limits.startswith("But the target is so near the plateau of word frequencies that it")
    for name in ("bert_r", "tupe_r"):
        row = row_of(pair_table(comparison), f"{name}\nagainst bert_a")
        assert {row["steps"], row["FLOPs"], row["time"]} == {"-"}
    assert row_of(cost_table(comparison), "bert_a")["steps"] == "never"
    assert "WARNING: the target of 6.350 nats lies only 0.15 nats below" in text


def test_where_no_two_arms_left_the_plateau_that_is_the_finding(tmp_path):
    result, limits = found(*four_arms(tmp_path, STAYED, LEFT))
    # The plateau ends at 6.2, half-way from 6.6 to 5.8.
    assert result == (
        "Only bert_r left the plateau of word frequencies, after 15 steps, and ends at 5.000 nats "
        "after 40 steps."
    )
    assert limits == f"But with one seed each any difference may be chance, and {TUNING}"
    result, limits = found(*four_arms(tmp_path / "none", STAYED, STAYED))
    assert result == "No arm left the plateau of word frequencies within 40 steps."
    assert limits == f"But with one seed each any difference may be chance, and {TUNING}"


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
    assert "ends 0.3 nats below their entropy of 6.500" in table.remark
    unknown = compare(runs(*four_arms(tmp_path / "x", STAYED, LEFT, frequency_entropy=None)), "6.4")
    assert cost_table(unknown).headers == ["arm", "steps", "tokens", "FLOPs", "time"]
    assert row_of(cost_table(unknown), "bert_a")["steps"] == "30" and not cost_table(unknown).remark


def test_a_plateau_left_before_the_first_evaluation_is_a_bound(tmp_path):
    comparison = compare(runs(*four_arms(tmp_path, (6.0, 5.0), (4.0, 3.0))), "5.5")
    first, second = (row_of(cost_table(comparison), name)["steps"] for name in ("bert_a", "bert_r"))
    assert first.split("\n") == ["<= 10", ">= 5", "15"]
    assert second.split("\n") == ["<= 10", "-", "<= 10"]


def test_of_many_pairs_those_between_neighbours_are_told(tmp_path):
    words = [(*BERT, *POST), BERT, POST, DROP, (*POST, *DROP), (*BERT, *DROP)]
    arms = [arm(tmp_path, f"arm{number}", *words) for number, words in enumerate(words)]
    result, _ = found(*(folder for folders in arms for folder in folders))
    assert result.count(";") == 2
    nearest = {"arm3": "arm2", "arm4": "arm2", "arm5": "arm1"}
    for name, other in nearest.items():
        assert f"{name} reached 4.000 nats with 100% of the steps" in result
        assert f"of {other}" in result


def test_what_lies_within_the_range_of_the_seeds_is_called_no_difference(tmp_path):
    base = arm(tmp_path, "base", ends=(3.9, 4.0, 4.1))
    same = arm(tmp_path, "same", *POST, ends=(3.8, 4.05, 4.2, 4.05), **{"speed": 10.0})
    better = arm(tmp_path, "better", *DROP, ends=(3.0, 3.1, 3.1, 3.2))
    # Crossings of 4.5: 30 + 10 * 0.5 / (5 - end).
    share = (30 + 5 / 0.95) / (30 + 5 / 1.0)
    on_same, on_better = found(*base, *same, *better, target="4.5")[0].split("; ")
    assert on_same == (
        f"same reached 4.500 nats with {share:.0%} of the steps ({WITHIN}), {share:.0%} of the "
        f"FLOPs ({WITHIN}) and {10 * share:.0%} of the time of base, and ended 0.050 nats higher "
        f"({WITHIN})"
    ) or on_same == (
        f"same reached 4.500 nats with {share:.0%} of the steps and FLOPs ({WITHIN}) and "
        f"{10 * share:.0%} of the time of base, and ended 0.050 nats higher ({WITHIN})"
    )
    assert WITHIN not in on_better and on_better.endswith("and ended 0.900 nats lower.")
    rows = pair_table(compare(runs(*base, *same), "4.5"))
    assert row_of(rows, "same\nagainst base")["steps"].endswith("\nin range")


def test_one_seed_each_is_no_evidence_of_a_difference(tmp_path):
    base, other = arm(tmp_path, "base"), arm(tmp_path, "other", *POST, ends=(3.0,))
    assert "with one seed each any difference may be chance" in found(*base, *other)[1]
    more = arm(tmp_path / "more", "other", *POST, ends=(3.0, 3.1))
    assert "base has one seed only" in found(*base, *more)[1]


def test_tokens_are_named_where_they_are_not_the_steps(tmp_path):
    base = arm(tmp_path, "base")
    other = arm(tmp_path, "other", "--batch.global_sequences", "16", losses=(7.0, 4.0))
    assert "tokens" not in found(*base, *other)[0]
    lines = (other[0] / "evals.jsonl").read_text()
    (other[0] / "evals.jsonl").write_text(
        lines.replace('"tokens": 2560', '"tokens": 5121').replace(
            '"tokens": 5120', '"tokens": 9999'
        )
    )
    assert "98% of the tokens" in found(*base, *other)[0]


def test_an_arm_that_never_gets_there_is_said_to(tmp_path):
    base = arm(tmp_path, "base", ends=(4.0, 4.1, 4.2))
    never = arm(tmp_path, "never", *POST, ends=(5.0, 6.0))
    rarely = arm(tmp_path, "rarely", *DROP, ends=(4.0, 5.0, 6.0))
    on_never, on_rarely = found(*base, *never, *rarely)[0].split("; ")
    assert on_never == (
        "never did not reach 4.100 nats, which base did, and ended 1.400 nats higher"
    )
    assert on_rarely.startswith(
        "rarely did not reach 4.100 nats, which base did (1 of 3 runs of rarely did), and ended"
    )
    assert found(*never, *base, target="4.1")[0].startswith(
        "base reached 4.100 nats, which never did not, and ended 1.400 nats lower"
    )
    assert found(*base, *never, target="3.5")[0].startswith(
        "base and never did not reach 3.500 nats, and never ended 1.400 nats higher"
    )


def test_losses_that_are_not_finite_are_words(tmp_path):
    base = arm(tmp_path, "base", ends=(4.0, 4.1))
    lost = arm(tmp_path, "lost", *POST, ends=(math.nan, math.inf))
    half = arm(tmp_path, "half", *DROP, ends=(4.0, 4.05, math.nan))
    comparison = compare(runs(*base, *lost, *half), "5.5")
    result, limits = finding(comparison)
    on_lost, on_half = result.split("; ")
    assert on_lost.endswith(" (lost diverged before the end)")
    assert on_half.endswith(f"and both ended at the same loss ({WITHIN}).")
    assert "3 runs diverged" in limits
    text = in_text(comparison, 80)
    assert "nan" not in text.replace("is not a number", "") and "inf" not in text.replace(
        "infinite", ""
    )
    assert [row[3] for row in end_table(comparison).rows] == ["4.050", "diverged", "4.050"]


def test_the_end_of_an_unfinished_run_is_no_result(tmp_path):
    base = arm(tmp_path, "base")
    short = arm(tmp_path, "short", *POST, losses=(6.0, 4.5), finished=False)
    comparison = compare(runs(*base, *short), "5.0")
    result, limits = finding(comparison)
    assert result.endswith("of base.") and "ended" not in result
    assert "short is not finished, ends after unequal training are not compared" in limits
    assert row_of(pair_table(comparison), "short\nagainst base")["loss at end"] == "-"
    assert any(
        "short-0 is not finished: its last evaluation, after step 20" in note
        for note in comparison.notes
    )


def test_an_end_above_guessing_is_noted(tmp_path):
    base = arm(tmp_path, "base", losses=(6.0, 4.5))
    high = arm(tmp_path, "high", *POST, losses=(6.0, 20_556.0))
    (note,) = [one for one in compare(runs(*base, *high), "5.0").notes if "guessing" in one]
    assert "high-0 ends above" in note and note.endswith("among all words: it diverged")


def test_a_target_passed_before_the_first_evaluation_is_a_bound(tmp_path):
    base = arm(tmp_path, "base")
    early = arm(tmp_path, "early", *POST, losses=(3.0, 2.9, 2.8, 2.7))
    comparison = compare(runs(*base, *early))
    assert "early reached 4.000 nats with at most 25% of the steps" in finding(comparison)[0]
    assert row_of(pair_table(comparison), "early\nagainst base")["steps"] == "<= 25%"
    assert any("early-0" in note and "was below 4.000" in note for note in comparison.notes)
    backwards = compare(runs(*early, *base), "4.0")
    assert finding(backwards)[0].startswith(
        "base and early reached 4.000 nats, early before its first evaluation, and ended"
    )
    assert row_of(pair_table(backwards), "base\nagainst early")["steps"] == "-"


def test_time_that_cannot_be_compared_is_a_limit(tmp_path):
    base, other = arm(tmp_path, "base"), arm(tmp_path, "other", *POST, device="another")
    result, limits = found(*base, *other)
    assert "time" not in result and "time is not comparable" in limits


def test_one_arm_is_no_comparison(tmp_path):
    assert found(*arm(tmp_path, "alone", ends=(4.0, 4.1))) == (
        "alone ends at 4.050 nats (4.000 - 4.100 over 2 seeds) after 40 steps.",
        "But that is no comparison: it shows what the seed alone changes.",
    )


@pytest.mark.parametrize("entropy", [None, 0.0, 3.0, 6.5, 1e9])
def test_there_are_two_sentences_whatever_the_entropy(tmp_path, entropy):
    for curves in ((STAYED, LEFT), (STAYED, STAYED), (LEFT, SOONER, LATER), (STAYED, LEFT, LATER)):
        folders = four_arms(tmp_path / str(len(list(tmp_path.iterdir()))), *curves)
        known = four_arms(
            tmp_path / f"k{len(list(tmp_path.iterdir()))}", *curves, frequency_entropy=entropy
        )
        for target in ("auto", "6.35", "5.0", "1.0"):
            for group in (folders, known):
                sentences = found(*group, target=target)
                assert all(one.endswith(".") and ".." not in one for one in sentences)
                assert all("None" not in one and "inf" not in one for one in sentences)
