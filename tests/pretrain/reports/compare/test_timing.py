"""When seconds of runs are compared, and that they are shown nowhere when they are not."""

import json
import re

import pytest

from pretrain.reports.compare.caveats import weighted_by_seconds
from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.runs import read_run
from pretrain.reports.compare.tables import report_of
from tests.pretrain.commands.test_compare import runs, write_run

OTHER = ("--model.norm", "post", "--name", "other")


@pytest.fixture
def baseline(tmp_path):
    return write_run(tmp_path / "baseline", "--name", "baseline", waits=0.01, hosts=1)


def test_time_of_runs_on_one_quiet_machine_is_compared_everywhere(baseline, tmp_path):
    other = write_run(tmp_path / "other", *OTHER, speed=50.0, waits=0.02)
    comparison = compare(runs(baseline, other))
    assert comparison.reasons_against_seconds == []
    text = report_of(comparison).as_text(80)
    assert "200%" in text and "1 min 42 s" in text and "training_seconds" in comparison.axes


def test_precisions_that_were_chosen_and_what_was_not_recorded_are_no_difference(
    baseline, tmp_path
):
    chosen = ("--engine.ds_config", "zero0_fp32")
    other = write_run(tmp_path / "other", *OTHER, *chosen, precision="float32")
    old = write_run(tmp_path / "old", *OTHER)
    launch = json.loads((old / "launches.jsonl").read_text())
    for name in ("manifest", "threads", "variables", "precision"):
        del launch[name]
    (old / "launches.jsonl").write_text(json.dumps(launch) + "\n")
    assert compare(runs(baseline, other)).reasons_against_seconds == []
    assert not any("different launches" in note for note in compare(runs(baseline, old)).notes)


@pytest.mark.parametrize(
    "doubt",
    [
        {"threads": 2},
        {"precision": "float32"},
        {"hosts": 2},
    ],
)
def test_time_that_cannot_be_compared_is_no_axis_and_the_first_note_says_why(
    baseline, tmp_path, doubt
):
    other = write_run(tmp_path / "other", *OTHER, **{"speed": 50.0, "final_rate": 1e-3, **doubt})
    comparison = compare(runs(baseline, other))
    assert comparison.notes[0].startswith("seconds not comparable: ")
    assert list(comparison.axes) == ["step", "tokens", "flops"]
    assert comparison.share(comparison.pairs[0], "training_seconds") is None
    assert comparison.share(comparison.pairs[0], "step") == 1
    shown = report_of(comparison).as_text(80).partition("note: ")[0]
    assert "time to" not in shown and not re.search(r"\d (s|min)\b", shown)


def test_seeds_of_an_arm_at_different_speeds_were_not_alone(baseline, tmp_path):
    seeds = [
        write_run(tmp_path / f"s{seed}", *OTHER, "--seed", str(seed), speed=speed)
        for seed, speed in enumerate((100.0, 125.0))
    ]
    (reason,) = compare(runs(baseline, *seeds)).reasons_against_seconds
    assert reason == "1 arm of unequal speeds (22%)"  # 25 / 112.5


def test_losses_after_equal_hours_are_not_compared_where_seconds_are_not(tmp_path):
    hours = ("--hours", "2")
    one = write_run(tmp_path / "one", *hours)
    same = write_run(tmp_path / "same", *OTHER, *hours, losses=(7.0, 6.0, 5.0, 4.5, 3.5))
    other = write_run(tmp_path / "other", *OTHER, *hours, losses=(7.0, 6.0, 3.0), threads=2)
    assert "-0.500" in report_of(compare(runs(one, same))).as_text(200)
    assert "-1.000" not in report_of(compare(runs(one, other))).as_text(200)


def test_a_share_of_waiting_is_weighted_by_the_seconds_of_its_line(tmp_path):
    folder = write_run(tmp_path / "run", losses=(7.0, 6.0), speeds=(100.0, 300.0))
    run = read_run(folder)
    for line, share in zip(run.metrics, (0.4, 0.0), strict=True):
        line["processor_wait_share"] = share
    assert weighted_by_seconds(run, "processor_wait_share") == pytest.approx(0.4 * 3 / 4)
