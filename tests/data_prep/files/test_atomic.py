"""What reaches the disk, and in which order: a loss of power keeps what was reported as written."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from data_prep.files.atomic import remove_strays, save_text
from data_prep.shards.folders import complete_or_absent


@pytest.fixture
def events(monkeypatch):
    """The order of waits for the disk, by what they wait for, and of renames, by the new name."""
    seen = []
    sync, rename = os.fsync, Path.replace

    def waits(descriptor):
        seen.append(("wait", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def renames(self, target):
        seen.append(("rename", str(target)))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", waits)
    monkeypatch.setattr(Path, "replace", renames)
    return seen


def test_the_name_of_a_file_reaches_the_disk_after_its_content(events, tmp_path):
    save_text(tmp_path / "note.txt", "kept")
    (kind, partial), *rest = events
    assert kind == "wait" and Path(partial).name.startswith("note.txt.partial-")
    assert rest == [("rename", str(tmp_path / "note.txt")), ("wait", str(tmp_path))]


def test_the_content_of_a_folder_reaches_the_disk_before_its_name(events, tmp_path):
    with complete_or_absent(tmp_path / "shards") as partial:
        (partial / "part").write_text("content")
    assert events == [
        ("wait", str(partial / "part")),
        ("wait", str(partial)),
        ("rename", str(tmp_path / "shards")),
        ("wait", str(tmp_path)),
    ]


def test_a_file_system_that_cannot_wait_for_names_is_written_to(monkeypatch, tmp_path):
    sync = os.fsync

    def refuses_folders(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuses_folders)
    save_text(tmp_path / "note.txt", "kept")
    assert (tmp_path / "note.txt").read_text() == "kept"


def test_what_a_killed_process_was_writing_is_removed_and_no_more(tmp_path):
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (tmp_path / "below").mkdir()
    for name in ("a.json", f"a.json.partial-{os.getpid()}", f"below/a.json.partial-{gone.pid}"):
        (tmp_path / name).touch()
    (tmp_path / ".partial-12345678").mkdir()  # a report that is written beside it
    remove_strays(tmp_path)
    kept = {file.name for file in tmp_path.rglob("*.json*")}
    assert kept == {"a.json", f"a.json.partial-{os.getpid()}"}
