"""When the ends of runs can be compared: at equal tokens, FLOPs or hours."""

import json

import pytest

from pretrain.config.run_files import DECISIONS
from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.runs import have_equal_flops
from pretrain.reports.compare.tables import result_table
from tests.pretrain.commands.test_compare import row_of, runs, write_run
from tests.pretrain.reports.compare.test_report import BERT, DROP, arm


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
    row = row_of(result_table(comparison), "b")
    assert row["loss at end"] == "5.000\n5.000 or more"
    assert row["difference"].startswith("+1.000\n+0.800 or more")
    said = " ".join(comparison.notes)
    assert f"diverged: {stopped}" in said and "not finished" not in said
    assert "different budgets" not in said


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
    about = "tokens, at equal FLOPs" if are_equal else "tokens"
    assert f"different budgets: {about}" in found.notes


def test_of_long_runs_a_thousandth_is_equal_though_it_is_more_than_a_step(tmp_path):
    costs = (30e12, 30.02e12, 30.04e12)
    found = runs(*(with_cost(write_run(tmp_path / str(cost)), cost) for cost in costs))
    for run in found:
        run.evaluations[-1]["step"] = 30_000
    assert have_equal_flops(found[:2]) and not have_equal_flops(found)


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
