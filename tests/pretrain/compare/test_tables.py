"""What the report says of speed, of run folders that the tests write."""

import json

import pytest

from pretrain.compare.convergence import compare
from pretrain.compare.run_tables import run_speed, share_table, speed_table
from pretrain.profiling.phase_names import SHARES
from tests.pretrain.commands.test_compare import runs, write, write_run

RATE = {"flops_per_second": 2e12, "source": "of the tests"}


def add_to_metrics(folder, *additions):
    """Add something to each line of metrics.jsonl."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    pairs = zip(rows, additions, strict=True)
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({**row, **addition}) + "\n" for row, addition in pairs)
    )


@pytest.fixture
def measured(tmp_path):
    """Two lines of metrics, after 25.6 and 51.2 seconds, with everything that is logged."""
    folder = write_run(tmp_path / "measured", losses=(7.0, 6.0), matrix_rate=RATE)
    shares = dict.fromkeys(SHARES, 0.0)
    add_to_metrics(
        folder,
        {
            "model_flops_utilisation": 0.4,
            "peak_memory_bytes": 3_000_000_000,
            "time_shares": {**shares, "data": 0.5, "forward": 0.5},
            "tokens_per_second": 100,
        },
        {
            "model_flops_utilisation": 0.5,
            "peak_memory_bytes": 4_000_000_000,
            "time_shares": {**shares, "forward": 0.25, "other": 0.75},
            "tokens_per_second": 300,
        },
    )
    return folder


def test_a_run_is_summed_up_by_its_mean_speed_its_highest_memory_and_all_of_its_time(measured):
    (run,) = runs(measured)
    speed = run_speed(run)
    assert speed["tokens_per_second"] == pytest.approx(5120 / 51.2)
    assert speed["model_flops_utilisation"] == pytest.approx((0.4 + 0.5) / 2)
    assert speed["peak_memory_bytes"] == 4_000_000_000
    assert speed["flops_per_second_of_a_rank"] == 2e12
    expected = dict.fromkeys(SHARES, 0.0) | {"data": 0.25, "forward": 0.375, "other": 0.375}
    assert speed["time_shares"] == pytest.approx(expected)


def test_long_intervals_weigh_more_in_the_shares(measured):
    row = {"training_seconds": 25.6 + 3 * 25.6}
    add_to_metrics(measured, {}, row)
    (run,) = runs(measured)
    assert run_speed(run)["time_shares"]["data"] == pytest.approx(0.5 / 4)


def test_a_run_that_logged_none_of_it_shows_dashes(measured, tmp_path):
    old = write_run(tmp_path / "old", "--model.norm", "post", losses=(7.0, 6.0))
    add_to_metrics(old, {"data_stall_share": 0.1}, {"data_stall_share": 0.1})
    comparison = compare(runs(measured, old))
    assert speed_table(comparison).rows == [
        [str(measured), "100", "45.0%", "2.00 T", "4.00 GB"],
        [str(old), "100", *["-"] * 3],
    ]
    assert share_table(comparison).rows == [
        [str(measured), "25.0%", "37.5%", "0.0%", "0.0%", "0.0%", "37.5%", "-"],
        [str(old), *["-"] * 7],
    ]


def test_a_run_without_any_line_of_metrics_shows_dashes_too(measured, tmp_path):
    empty = write_run(tmp_path / "empty", "--model.norm", "post")
    (empty / "metrics.jsonl").write_text("")
    table = speed_table(compare(runs(measured, empty)))
    assert table.rows[1] == [str(empty), "100", *["-"] * 3]


def test_the_report_shows_and_writes_it(measured, tmp_path):
    old = write_run(tmp_path / "old", "--model.norm", "post", losses=(7.0, 6.0))
    page = write(compare(runs(measured, old)), tmp_path / "report")
    assert "Speed, memory, and where the time of each run went" in page
    assert all(f"<span>{cell}</span>" in page for cell in ("45.0%", "4.00 GB", "-"))
    numbers = json.loads((tmp_path / "report" / "comparison.json").read_text())
    speeds = [run["speed"] for arm in numbers["arms"] for run in arm["runs"]]
    assert speeds[0]["model_flops_utilisation"] == pytest.approx(0.45)
    assert speeds[1]["time_shares"] is None
