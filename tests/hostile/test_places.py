"""Places that refuse, change or lead elsewhere: read-only folders, records and texts of others."""

import errno
import json
import os
from pathlib import Path

import pytest

from data_prep.pipeline import build as build_module
from data_prep.pipeline.build import build
from data_prep.shards.manifest import ShardError
from data_prep.sources.source import CorpusError
from pretrain.config.errors import ConfigError
from pretrain.reports.report_folder import RECORD_FILE
from pretrain.train.recording import run_folder
from tests.data_prep.pipeline.test_resume import assert_ends_as_straight, stop
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


def test_an_unwritable_run_folder_is_one_line(command, tmp_path):
    (tmp_path / "file").write_text("")
    status, _, errors = command.run(command.words("--run-folder", tmp_path / "file" / "run"))
    assert status == 1
    assert "cannot write the run folder" in errors and "choose another one" in errors
    assert errors.count("error: ") == 1 and "Traceback" not in errors


def test_a_corpus_that_changes_after_all_was_read_is_refused(few, tmp_path):
    found = stop(few, tmp_path / "shards", 20, segment_bytes=2000)
    assert any("kept" in file.name for file in found)
    with (tmp_path / "text.txt").open("a") as text:
        text.write("\n\nA line that came too late for this build.\n")
    with pytest.raises(ShardError, match="files of its corpus have changed"):
        build(few, tmp_path / "shards", workers=1)


def test_a_corpus_that_changes_while_it_is_read_is_refused_and_read_again(
    few, tmp_path, monkeypatch
):
    file = tmp_path / "text.txt"
    original = build_module.read_sources

    def read_sources(*arguments, **options):
        segments = original(*arguments, **options)
        file.write_text(file.read_text() + "\n\nA line that came too late for this build.\n")
        return segments

    with monkeypatch.context() as patched:
        patched.setattr(build_module, "read_sources", read_sources)
        with pytest.raises(CorpusError, match=r"text\.txt: changed while it was being read; wait"):
            build(few, tmp_path / "shards", workers=1)
    assert_ends_as_straight(few, tmp_path / "shards")


def test_the_record_of_a_report_gives_no_right_to_files_elsewhere(tmp_path):
    report, kept = tmp_path / "report", tmp_path / "kept.txt"
    written(report, "index.html")
    kept.write_text("")
    (report / RECORD_FILE).write_text(json.dumps({"files": ["../kept.txt", str(kept)]}))
    written(report, "index.html")
    assert kept.exists()
