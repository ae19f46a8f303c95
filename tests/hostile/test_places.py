"""Places that refuse, change or lead elsewhere: read-only folders, records and texts of others."""

import errno
import json
import os
from pathlib import Path

import pytest

from pretrain.config.errors import ConfigError
from pretrain.reports.report_folder import RECORD_FILE
from pretrain.train.recording import run_folder
from tests.pretrain.reports.test_report_folder import written


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "make it writable and resume"),
        (errno.EMFILE, r"open files \(ulimit -n 4096\)"),
    ],
)
def test_a_folder_that_cannot_be_resumed_in_is_one_line_with_the_remedy(
    tmp_path, monkeypatch, number, remedy
):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        ConfigError, match=rf"cannot be written \({os.strerror(number)}\); .*{remedy}"
    ):
        run_folder.RunRecord(tmp_path).hold()


def test_an_unwritable_run_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    record = run_folder.RunRecord(tmp_path / "file" / "run")
    with pytest.raises(ConfigError, match="cannot write the run folder .*; choose another one"):
        record.create(None, {}, None)


def test_the_record_of_a_report_gives_no_right_to_files_elsewhere(tmp_path):
    report, kept = tmp_path / "report", tmp_path / "kept.txt"
    written(report, "index.html")
    kept.write_text("")
    (report / RECORD_FILE).write_text(json.dumps({"files": ["../kept.txt", str(kept)]}))
    written(report, "index.html")
    assert kept.exists()
