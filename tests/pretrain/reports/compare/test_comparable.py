"""When the seconds of runs are compared, and their ends: at equal tokens, FLOPs or hours."""

import json
import re

import pytest

from pretrain.config.run_files import DECISIONS, has_ended
from pretrain.reports.compare.caveats import weighted_by_seconds
from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.runs import have_equal_flops, read_run
from pretrain.reports.compare.tables import report_of, result_table
from tests.pretrain.commands.test_compare import row_of, runs, write_run
from tests.pretrain.conftest import lines
from tests.pretrain.reports.compare.test_report import BERT, DROP, arm, stop
from tests.pretrain.run_files import LAUNCH

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


@pytest.mark.parametrize("doubt", [{"threads": 2}, {"precision": "float32"}, {"hosts": 2}])
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


def test_a_run_that_an_anomaly_stopped_ends_at_infinity_whatever_it_had_reached(tmp_path):
    """Its last evaluation, early and finite, is not its end; the other seeds are compared."""
    folders = [
        *arm(tmp_path, "a", ends=(4.0, 4.2, 4.1)),
        *arm(tmp_path, "b", *BERT, ends=(5.0,) * 3),
    ]
    stopped = stop(folders[-1])
    comparison = compare(runs(*folders), "6.0")
    row = row_of(result_table(comparison), "b")
    assert row["loss at end"] == "5.000\n5.000 or more"
    assert row["difference"].startswith("+1.000\n+0.800 or more")
    said = " ".join(comparison.notes)
    assert f"diverged: {stopped}" in said and "not finished" not in said
    assert "different budgets" not in said
    assert "different budgets" not in " ".join(compare(runs(folders[0], stopped), "6.0").notes)
    later = json.dumps({**LAUNCH, "at": "2026-01-02T00:00:00+0000"})  # it goes on now
    decision = '{"action": "stop", "at": "2026-01-01T12:00:00+0000"}\n'
    (stopped / DECISIONS).write_text(decision)
    assert has_ended(stopped)
    (stopped / "launches.jsonl").write_text(f"{json.dumps(LAUNCH)}\n{later}\n")
    assert not has_ended(stopped)


def test_a_seed_that_was_repaired_by_a_resume_stays_in_its_arm(tmp_path):
    folders = [*arm(tmp_path, "a", ends=(4.0, 4.2)), *arm(tmp_path, "b", *BERT, ends=(5.0,))]
    repaired = ("--trouble.on_not_finite", "rewind", "--checkpoint.keep_last", "2")
    changes = {"trouble.on_not_finite": ["stop", "rewind"], "checkpoint.keep_last": [None, 2]}
    again = write_run(tmp_path / "c", "--seed", "1", *BERT, *repaired, changed_settings=changes)
    folders.append(again)
    metrics = lines(folders[-1], "metrics.jsonl", without=())
    metrics[-1]["left_out_steps"] = 2
    (folders[-1] / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in metrics))
    comparison = compare(runs(*folders), "6.0")
    assert [len(one.runs) for one in comparison.arms] == [2, 2]
    meant = write_run(tmp_path / "d", "--seed", "1", *BERT, *repaired)  # an arm of its own
    assert len(compare(runs(*folders[:-1], meant), "6.0").arms) == 3
    assert f"rewound, and what was lost is not counted: {folders[-1]}" in comparison.notes


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
    longer = write_run(tmp_path / "c", "--steps", "60", losses=(7.0, 6.0, 5.0), finished=False)
    found_longer = compare(
        runs(first, longer), "6.0"
    )  # at equal tokens, in the middle of a schedule
    assert not found_longer.has_comparable_ends(*found_longer.pairs)
    about = "tokens, at equal FLOPs" if are_equal else "tokens"
    assert f"different budgets: {about}" in found.notes


def test_of_long_runs_a_thousandth_is_equal_though_it_is_more_than_a_step(tmp_path):
    costs = (30e12, 30.02e12, 30.04e12)
    found = runs(*(with_cost(write_run(tmp_path / str(cost)), cost) for cost in costs))
    for run in found:
        run.evaluations[-1]["step"] = 30_000
    assert have_equal_flops(found[:2]) and not have_equal_flops(found)


def test_a_model_that_was_trained_before_is_another_budget(tmp_path):
    fresh, adapted = (write_run(tmp_path / name, "--name", name) for name in "ab")
    settings = json.loads((adapted / "run.json").read_text())
    settings["model"]["folder"] = "roberta-base"
    (adapted / "run.json").write_text(json.dumps(settings))
    assert "different budgets: initial weights" in compare(runs(fresh, adapted)).notes


def test_equal_tokens_of_unequal_cost_are_said(tmp_path):
    first, second, third = (
        write_run(tmp_path / name, "--name", name, *words)
        for name, words in (("a", ()), ("b", DROP), ("c", ("--model.norm", "post")))
    )
    lines = [json.loads(line) for line in (second / "evals.jsonl").read_text().splitlines()]
    for line in lines:
        line["flops"] *= 0.75
    (second / "evals.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    notes = compare(runs(first, second, third)).notes
    cost = "different budgets: FLOPs, at equal tokens (100%, 75%, 100%); "
    assert f"{cost}tupelo sweep --budget flops equals them" in notes
