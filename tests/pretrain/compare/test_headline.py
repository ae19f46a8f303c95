"""What was compared, in words, and the text that a terminal shows."""

import math
from pathlib import Path

import pytest

from pretrain.commands.compare import in_text
from pretrain.compare.convergence import compare
from pretrain.compare.headline import headline
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


def test_one_arm_is_not_compared_with_itself(tmp_path):
    alone = compare(runs(*arm(tmp_path, "alone", ends=(4.0, 4.1))))
    assert headline(alone) == ["2 runs of 1 arm: they differ in the seed only"]


@pytest.mark.parametrize(
    ("target", "first"),
    [
        ("5.0", "2 runs of 2 arms; target: held-out loss 5.000, 1.50 nats below the unigram"),
        ("5.5", "2 runs of 2 arms; target: held-out loss 5.500, 1.00 nats below the unigram"),
        ("5.501", "WARNING: a target 1.00 nats below the unigram entropy shows"),
        ("6.6", "WARNING: a target 0.10 nats above the unigram entropy shows"),
    ],
)
def test_the_first_line_warns_of_a_target_near_the_plateau(tmp_path, target, first):
    known = {"frequency_entropy": 6.5}
    folders = [*arm(tmp_path, "base", **known), *arm(tmp_path, "new", *POST, **known)]
    comparison = compare(runs(*folders), target)
    assert headline(comparison)[0].startswith(first)
    assert comparison.has_target_near_plateau is first.startswith("WARNING")
    assert in_text(comparison, 80).startswith(first[:50])
    unknown = [*arm(tmp_path / "x", "base"), *arm(tmp_path / "x", "new", *POST)]
    text = in_text(compare(runs(*unknown), target), 120)
    assert text.count("entropy") == 1 and "note: no run recorded the unigram" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_everything_fits_the_terminal(tmp_path, width, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arms = [
        arm(Path(), f"an_arm_of_the_paper_{number}", *words, ends=(4.0, 4.1))
        for number, words in enumerate([(), POST, BERT, DROP, (*POST, *BERT), (*BERT, *DROP)])
    ]
    text = in_text(compare(runs(*(folder for folders in arms for folder in folders))), width)
    assert max(map(len, text.split("\n"))) <= width


def test_tables_come_first_then_notes_with_the_most_severe_first(tmp_path):
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
        *("2 runs of 2 arms", "Cost of reaching", "At the end"),
        *("Arm against arm", "note: time is left out", "diverged: a held-out", "is not finished:"),
        *("different training budgets", "one seed only", "different commits"),
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
