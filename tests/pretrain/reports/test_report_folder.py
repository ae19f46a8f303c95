"""What a report may overwrite: only files of an earlier report."""

import pytest

from pretrain.config.errors import ConfigError
from pretrain.reports.report_folder import RECORD_FILE, ReportFolder


def written(folder, *files, text=""):
    report = ReportFolder(folder, "a comparison", "--report")
    report.refuse_if_taken()
    with report.writing() as place:
        for name in files:
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(text)


def content(folder):
    """Return every file of a folder but the record, with its text."""
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in folder.rglob("*")
        if file.is_file() and file.name != RECORD_FILE
    }


@pytest.fixture
def report(tmp_path):
    return tmp_path / "report"


def test_a_report_replaces_the_files_of_the_one_before_and_no_others(report):
    report.mkdir()
    written(report, "index.html", "figures/time.png")
    (report / "remarks.txt").write_text("mine")
    written(report, "index.html", text="new")
    assert content(report) == {"index.html": "new", "remarks.txt": "mine"}


def test_a_folder_of_other_files_is_never_written_to(report):
    report.mkdir()
    (report / "index.html").write_text("the work of a week")
    with pytest.raises(ConfigError, match=r"holds other files \(index.html\).*another --report$"):
        written(report, "index.html")
    assert [file.name for file in report.iterdir()] == ["index.html"]
    assert content(report) == {"index.html": "the work of a week"}


def test_a_report_that_fails_leaves_the_one_before(report):
    written(report, "index.html", text="whole")
    with (
        pytest.raises(KeyboardInterrupt),
        ReportFolder(report, "a comparison", "--report").writing() as place,
    ):
        (place / "index.html").write_text("half of")
        raise KeyboardInterrupt
    assert content(report) == {"index.html": "whole"}


def test_what_a_killed_command_left_does_not_keep_the_next_one_out(report):
    (report / ".partial-12345678").mkdir(parents=True)
    written(report, "index.html")
    assert set(content(report)) == {"index.html"}


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=r"cannot write a comparison to .*another --report"):
            written(folder, "index.html")
