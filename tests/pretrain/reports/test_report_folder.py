"""What a report may overwrite: only what the same command wrote from the same runs."""

import shutil
import tempfile
from pathlib import Path

import pytest

from pretrain.config.errors import ConfigError
from pretrain.reports.report_folder import PARTIAL, RECORD_FILE, ReportFolder


def written(folder, sources, files=("index.html",), *, kind="a comparison", replaces=False):
    report = ReportFolder(folder, kind, sources, "--report", replaces)
    report.refuse_if_taken()
    with report.writing() as place:
        for name in files:
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(f"{kind} {[str(source) for source in sources]}")


def content(folder):
    """Return every file of a folder but the record, with its text."""
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in folder.rglob("*")
        if file.is_file() and file.name != RECORD_FILE
    }


@pytest.fixture
def runs(tmp_path):
    folders = [tmp_path / "runs" / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


@pytest.fixture
def report(tmp_path):
    return tmp_path / "report"


def test_the_same_command_replaces_its_report_and_removes_what_is_no_longer_part_of_it(
    runs, report
):
    written(report, runs[:2], ["index.html", "figures/time.png"])
    assert set(content(report)) == {"index.html", "figures/time.png"}
    written(report, [runs[1], runs[0]])  # in another order
    assert set(content(report)) == {"index.html"}
    written(report, runs)  # and one run more
    assert str(runs[2]) in content(report)["index.html"]


def test_a_report_of_other_runs_is_replaced_on_request_only(runs, report):
    written(report, runs[:2], ["index.html", "more.png"])
    before = content(report)
    with pytest.raises(ConfigError, match=r"with runs that are not named here \(.*/b\).*--replace"):
        written(report, [runs[0], runs[2]])
    assert content(report) == before
    written(report, [runs[0], runs[2]], replaces=True)
    assert set(content(report)) == {"index.html"}


def test_a_report_of_another_kind_is_replaced_on_request_only(runs, report):
    written(report, runs)
    before = content(report)
    with pytest.raises(ConfigError, match=r"holds a comparison; choose another --report, or"):
        written(report, runs, kind="a table of scores")
    assert content(report) == before
    written(report, runs, kind="a table of scores", replaces=True)
    assert "a table" in content(report)["index.html"]


@pytest.mark.parametrize("replaces", [False, True])
def test_a_folder_of_other_files_is_never_written_to(runs, report, replaces):
    report.mkdir()
    (report / "index.html").write_text("the work of a week")
    with pytest.raises(ConfigError, match=r"holds other files \(index.html\).*another --report$"):
        written(report, runs, replaces=replaces)
    assert content(report) == {"index.html": "the work of a week"}
    assert [file.name for file in report.iterdir()] == ["index.html"]


def test_an_empty_folder_is_written_to(runs, report):
    report.mkdir()
    written(report, runs)
    assert set(content(report)) == {"index.html"}


def test_files_that_were_added_by_hand_stay_and_are_not_overwritten(runs, report):
    written(report, runs)
    (report / "remarks.txt").write_text("mine")
    written(report, runs)
    assert content(report)["remarks.txt"] == "mine"
    with pytest.raises(ConfigError, match=r"remarks.txt was not written by --report; rename it"):
        written(report, runs, ["index.html", "remarks.txt"])
    assert content(report)["remarks.txt"] == "mine"


def test_a_report_that_fails_leaves_the_one_before(runs, report):
    written(report, runs)
    before = content(report)
    with (
        pytest.raises(KeyboardInterrupt),
        ReportFolder(report, "a comparison", runs, "--report").writing() as place,
    ):
        (place / "index.html").write_text("half of")
        raise KeyboardInterrupt
    assert content(report) == before


def test_what_a_killed_command_left_does_not_keep_the_next_one_out(runs, report):
    killed = tempfile.mkdtemp(prefix=PARTIAL, dir=runs[0])
    shutil.copytree(runs[0], report)
    (report / ".partial-mine").mkdir()
    written(report, runs)
    assert {entry.name for entry in report.iterdir()} == {
        *("index.html", RECORD_FILE, ".partial-mine")
    }
    assert Path(killed).is_dir(), "nothing is removed elsewhere"


def test_runs_and_report_can_be_moved_together(runs, report, tmp_path):
    written(report, runs)
    moved = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    written(moved / "report", [moved / "runs" / name for name in ("a", "b", "c")])


def test_a_place_that_cannot_be_written_is_one_line(runs, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=r"cannot write a comparison to .*another --report"):
            written(folder, runs)
