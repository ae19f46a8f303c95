"""What a terminal and the files of a report show."""

import csv
import math
from pathlib import Path

import pytest

from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.tables import report_of
from tests.pretrain.commands.test_compare import runs, write_run

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
    note = "target near the unigram entropy: tupelo compare --target 5.5 or less"
    assert (note in comparison.notes) is is_near
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
        *("target near the unigram entropy", "different launches"),
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
