"""What a terminal, the tables and the files of a report show, worked out by hand."""

import csv
import math
from pathlib import Path

import pytest

from pretrain.config.run_files import DECISIONS
from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.tables import report_of, result_table, run_table, settings_table
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


def stop(run):
    """Let an anomaly stop a run after its first evaluation; return its folder."""
    (run / "result.json").unlink()
    lines = (run / "evals.jsonl").read_text().splitlines(keepends=True)
    (run / "evals.jsonl").write_text(lines[0])
    (run / "trouble").mkdir()
    (run / DECISIONS).write_text('{"action": "rewind"}\n{"action": "stop"}\n')
    return run


@pytest.mark.parametrize(
    ("target", "where", "is_near"),
    [
        ("5.0", "5.000 nats, 1.50 below", False),
        ("5.5", "5.500 nats, 1.00 below", False),
        ("5.501", "5.501 nats, 1.00 below", True),
        ("6.6", "6.600 nats, 0.10 above", True),
    ],
)
def test_a_target_near_the_unigram_entropy_is_noted(tmp_path, target, where, is_near):
    known = {"frequency_entropy": 6.5}
    folders = [*arm(tmp_path, "base", **known), *arm(tmp_path, "new", *POST, **known)]
    comparison = compare(runs(*folders), target)
    lead = f"2 runs of 2 arms; target {where} the unigram entropy 6.500"
    assert report_of(comparison).as_text(80).startswith(lead)
    note = "target not 1 nat below the unigram entropy: "
    assert (f"{note}tupelo compare RUN ... --target 5.5" in comparison.notes) is is_near
    names = {"base": (), "new": POST}
    early = [arm(tmp_path / "y", name, *names[name], ends=(5.9,), **known)[0] for name in names]
    assert (f"{note}train longer" in compare(runs(*early), target).notes) is is_near
    mixed = compare(runs(folders[0], early[1]), target)  # one of two is low enough
    assert (f"{note}train longer" in mixed.notes) is is_near
    unknown = [*arm(tmp_path / "x", "base"), *arm(tmp_path / "x", "new", *POST)]
    text = report_of(compare(runs(*unknown), target)).as_text(120)
    assert text.count("entropy") == 1 and "note: unigram entropy: not recorded" in text


def test_two_doubtful_arms_are_at_most_25_lines_and_each_note_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {"frequency_entropy": 6.5, "finished": False}
    base = arm(Path(), "base", ends=(4.0, 4.1, 4.2), **known)
    doubts = {"threads": 2, "waits": 0.3, "commit": "def", "final_rate": 1e-3, **known}
    other = arm(Path(), "other", *POST, ends=(3.9, 4.0, math.nan), **(doubts | {"finished": True}))
    comparison = compare(runs(*base, *other), "5.6")
    lines = report_of(comparison).as_text(80).split("\n")
    assert len(lines) <= 25
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines[-6:]] == [
        *("seconds not comparable", "diverged", "not finished", "learning rate not annealed"),
        *("target not 1 nat below the unigram entropy", "different launches"),
    ]
    assert lines[-6:] == [f"note: {note}" for note in comparison.notes]


def test_the_numbers_of_a_report_are_those_of_the_comparison(tmp_path):
    folders = [
        *arm(tmp_path, "base", ends=(4.2, 3.2)),
        *arm(tmp_path, "new", *POST, ends=(3.8, 3.0)),
    ]
    comparison = compare(runs(*folders), "4.5")
    base, _ = comparison.arms
    first, second = report_of(comparison).numbers
    assert (first["loss"], first["loss_low"], first["loss_high"]) == (3.7, 3.2, 4.2)
    assert "difference" not in first and second["difference"] == pytest.approx(-0.3)
    ends = [second[f"difference_{name}"] for name in ("low", "high", "confidence")]
    assert ends == pytest.approx([-0.4, -0.2, 0.5])
    for axis in ("step", "tokens", "flops", "training_seconds"):
        assert first[f"{axis}_to_target"] == comparison.reached(base, axis)
        assert second[f"{axis}_share"] == pytest.approx(comparison.share(comparison.pairs[0], axis))
    report_of(comparison).write(tmp_path, method="")
    lines = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [float(line["flops_to_target"]) for line in lines] == [
        comparison.reached(one, "flops") for one in comparison.arms
    ]


def test_steps_to_below_the_unigram_entropy_and_to_the_target(tmp_path):
    known = {"frequency_entropy": 6.5}
    folders = [
        *arm(tmp_path, "stayed", losses=(6.6, 6.5, 6.4, 6.3), **known),
        *arm(tmp_path, "left", *BERT, losses=(6.6, 5.8, 5.2, 5.0), **known),
        *arm(tmp_path, "sooner", *DROP, losses=(6.6, 5.6, 5.0, 4.5), **known),
    ]
    table = result_table(compare(runs(*folders), "4.9"))
    assert table.columns == [
        *("arm", "seeds", "loss at end", "difference", "steps below entropy"),
        *("steps to target", "tokens to target", "FLOPs to target", "time to target"),
    ]
    found = {row["arm"]: (row["steps below entropy"], row["steps to target"]) for row in table.rows}
    # 6.2 is 2/5 of the way from 6.6 to 5.6, and 4.9 is 1/5 of that from 5.0 to 4.5.
    assert found == {
        "stayed": ("not reached", "not reached"),
        "left": ("15", "not reached"),
        "sooner": ("14", "32"),
    }
    assert "Below entropy: 0.3 nats below the unigram entropy." in table.remark
    unknown = [*arm(tmp_path / "x", "a"), *arm(tmp_path / "x", "b", *POST)]
    assert "steps below entropy" not in result_table(compare(runs(*unknown))).columns


def test_what_was_passed_before_the_first_evaluation_is_a_bound(tmp_path):
    known = {"frequency_entropy": 6.5}
    base = arm(tmp_path, "base", losses=(6.0, 5.0, 4.5, 4.0), **known)
    early = arm(tmp_path, "early", *POST, losses=(3.0, 2.9, 2.8, 2.7), **known)
    evals = early[0] / "evals.jsonl"  # with step 0 before them, which changes nothing
    zero = '{"step": 0, "tokens": 0, "training_seconds": 0, "flops": 0, "loss": 9.0}'
    evals.write_text(f"{zero}\n{evals.read_text()}")
    found = compare(runs(*base, *early))
    marks = [numbers["to_target_is_upper_bound"] for numbers in report_of(found).numbers]
    assert marks == [False, True]
    first, second = result_table(found).rows
    assert (first["steps below entropy"], first["steps to target"]) == ("<= 10", "40")
    assert (second["steps below entropy"], second["steps to target"]) == ("<= 10", "<= 10\n<= 25%")
    # Of most seeds nothing is below the target, of one everything is: there is no bound.
    few = arm(tmp_path, "few", *DROP, losses=(6.0, 5.9, 5.8, 5.7), ends=(5.7, 5.7), **known)
    one = arm(tmp_path / "x", "few", *DROP, "--seed", "9", losses=(3.0, 2.9, 2.8, 2.7), **known)
    row = row_of(result_table(compare(runs(*base, *few, *one))), "few")
    assert row["steps to target"] == "not reached"
    backwards = compare(runs(*early, *base), "4.0")
    assert row_of(result_table(backwards), "base")["steps to target"] == "40"
    assert [row["steps to target"] for row in run_table(backwards).rows] == ["<= 10", "40"]


def test_losses_that_are_not_finite_are_words(tmp_path):
    base = arm(tmp_path, "base", ends=(4.0, 4.1))
    lost = arm(tmp_path, "lost", *POST, ends=(math.nan, math.inf))
    half = arm(tmp_path, "half", *DROP, ends=(4.0, 4.05, math.nan))
    comparison = compare(runs(*base, *lost, *half), "5.5")
    text = report_of(comparison).as_text(80)
    assert "nan" not in text.replace("significant", "") and "inf" not in text
    losses = [row["loss at end"] for row in result_table(comparison).rows]
    assert losses == ["4.050\n4.000 to 4.100", "diverged", "4.050\n4.000 or more"]


def test_the_end_of_an_unfinished_run_is_no_result(tmp_path):
    base = arm(tmp_path, "base")
    short = arm(tmp_path, "short", *POST, losses=(6.0, 4.5), finished=False)
    comparison = compare(runs(*base, *short), "5.0")
    assert row_of(result_table(comparison), "short")["difference"] == "-"
    assert f"not finished: {short[0]}" in comparison.notes
    assert [row["parameters"] for row in run_table(comparison).rows] == ["63.71 k", "-"]


def test_settings_and_launches_that_differ_have_a_column_for_each_arm(tmp_path):
    base, other = arm(tmp_path, "a"), arm(tmp_path, "b", *POST, commit="def", variables={"X": "1"})
    assert settings_table(compare(runs(*base, *other)).arms).rows == [
        {"": "model.norm", "a": "pre", "b": "post"},
        {"": "code", "a": "abc", "b": "def"},
        {"": "variables.X", "a": "unset", "b": "1"},
    ]
