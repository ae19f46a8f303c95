"""What a launch records about its code and surroundings, against git itself."""

import errno
import hashlib
from importlib.metadata import version
from pathlib import Path

import pytest

from pretrain.train.recording.provenance import (
    LARGEST_DIFF_BYTES,
    commit,
    environment,
    keep_uncommitted_code,
    num_hosts,
)
from tests.pretrain.train.recording.conftest import FILE, git

TOKEN = "hf_" + "a1B2" * 8


def test_a_machine_without_git_can_train(monkeypatch, run):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert environment()["commit"] == "unknown: git is not installed"
    assert keep_uncommitted_code(run)["diff"] is None


def test_a_clean_checkout_has_its_commit_and_no_diff(checkout, run):
    assert git(checkout, "rev-parse", "HEAD").startswith(commit(checkout))
    found = keep_uncommitted_code(run, checkout)
    assert found == {"diff": None, "diff_sha256": None, "left_out": []}
    assert list(run.iterdir()) == []


def test_commit_and_kept_diff_give_back_the_very_code_that_ran(checkout, run, tmp_path):
    (checkout / FILE).write_text("first = 2\n")
    (checkout / "pretrain" / "new.py").write_text("second = 'zwölf'\n")
    (checkout / "pretrain" / "staged.py").write_text("third = 3\n")
    git(checkout, "add", "pretrain/staged.py")
    found = keep_uncommitted_code(run, checkout)
    assert commit(checkout).endswith("-dirty")
    kept = run / found["diff"]
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == found["diff_sha256"]

    git(tmp_path, "clone", "-q", str(checkout), "again")
    git(tmp_path / "again", "apply", str(kept))
    for name in (FILE, "pretrain/new.py", "pretrain/staged.py"):
        ran, again = (folder / name for folder in (checkout, tmp_path / "again"))
        assert ran.read_bytes() == again.read_bytes()


def test_equal_changes_are_kept_once_and_other_changes_beside_them(checkout, run):
    source = checkout / FILE
    names = []
    for text in ("first = 2\n", "first = 2\n", "first = 3\n"):
        source.write_text(text)
        names.append(keep_uncommitted_code(run, checkout)["diff"])
    assert names[0] == names[1] != names[2]
    assert len(list((run / "code").iterdir())) == 2


def test_what_is_no_source_or_is_ignored_or_too_large_is_not_kept(checkout, run):
    (checkout / "runs").mkdir()
    (checkout / "runs" / "ignored.py").write_text("ignored = 1\n")
    (checkout / "diary.txt").write_text("private\n")
    (checkout / "large.py").write_text("#" * LARGEST_DIFF_BYTES)
    (checkout / "small.py").write_text("small = 1\n")
    found = keep_uncommitted_code(run, checkout)
    text = (run / found["diff"]).read_text()
    assert "small = 1" in text and found["left_out"] == ["large.py"]
    assert "private" not in text and "ignored = 1" not in text and len(text) < 1000


def test_changes_beyond_the_limit_leave_their_hash_only(checkout, run):
    (checkout / FILE).write_text("x = 1\n" * LARGEST_DIFF_BYTES)
    found = keep_uncommitted_code(run, checkout)
    assert found["diff"] is None and len(found["diff_sha256"]) == 64
    assert list(run.iterdir()) == []


def test_a_disk_that_refuses_the_diff_does_not_stop_the_run(checkout, run, monkeypatch):
    def refuse(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    (checkout / FILE).write_text("first = 2\n")
    kept = keep_uncommitted_code(run, checkout)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    refused = keep_uncommitted_code(run, checkout)
    assert refused == {**kept, "diff": None}
    assert (run / kept["diff"]).is_file() and len(list((run / "code").iterdir())) == 1


def test_code_that_lies_in_the_checkout_of_something_else_has_no_commit(checkout):
    installed = checkout / "environment" / "site-packages"
    installed.mkdir(parents=True)
    assert commit(installed) == "unknown: not a git checkout"


def test_the_versions_are_those_that_are_installed():
    found = environment()["versions"]
    for name in ("torch", "deepspeed", "numpy", "tokenizers", "h5py"):
        assert found[name] == version(name)


@pytest.mark.parametrize(
    ("variables", "hosts"),
    [({}, 1), ({"LOCAL_WORLD_SIZE": "8"}, 2), ({"LOCAL_SIZE": "4"}, 4)],
)
def test_launchers_tell_how_many_machines_there_are(variables, hosts):
    assert num_hosts(16, variables) == hosts
