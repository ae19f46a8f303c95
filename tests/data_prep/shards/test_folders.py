import errno

import pytest

from data_prep.shards.folders import complete_or_absent, workplace_of
from data_prep.shards.manifest import ShardError


def test_a_folder_is_complete_or_absent(tmp_path):
    with complete_or_absent(tmp_path / "new" / "folder") as partial:
        (partial / "file").write_text("content")
        assert not (tmp_path / "new" / "folder").exists()
    assert (tmp_path / "new" / "folder" / "file").read_text() == "content"
    with pytest.raises(ZeroDivisionError), complete_or_absent(tmp_path / "other"):
        raise ZeroDivisionError
    killed = tmp_path / ".other.partial" / "content"
    killed.mkdir(parents=True)
    (killed / "file").write_text("half")
    with complete_or_absent(tmp_path / "other") as partial:
        assert list(partial.iterdir()) == []
    (tmp_path / "other").rmdir()
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


def test_a_workplace_stays_after_a_failure_and_is_given_again_to_one_at_a_time(tmp_path):
    with pytest.raises(ZeroDivisionError), workplace_of(tmp_path / "folder") as workplace:
        (workplace / "half").write_text("done")
        raise ZeroDivisionError
    with workplace_of(tmp_path / "folder") as again:
        assert (again / "half").read_text() == "done"
        refused = pytest.raises(ShardError, match="another process is building it")
        with refused, workplace_of(tmp_path / "folder"):
            pass


def test_what_a_kill_after_the_last_step_left_is_removed(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.building").mkdir()
    (tmp_path / "folder.building" / "lock").touch()
    refused = pytest.raises(ShardError, match="exists already")
    with refused, workplace_of(tmp_path / "folder"):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("context", [complete_or_absent, workplace_of])
def test_what_exists_is_refused_and_a_full_disk_is_one_line(tmp_path, context):
    with pytest.raises(ShardError, match="exists already; remove it or"), context(tmp_path):
        pass
    full = pytest.raises(ShardError, match=r"cannot be written \(No space left.*free some space")
    with full, context(tmp_path / "full"):
        raise OSError(errno.ENOSPC, "No space left on device")
    too_long = pytest.raises(ShardError, match=r"cannot be written \(File name too long\)")
    with too_long, context(tmp_path / ("😀" * 120)):
        pass
    (tmp_path / "file").write_text("")
    refused = pytest.raises(ShardError, match=r"cannot be written \(Not a directory\)")
    with refused, context(tmp_path / "file" / "below"):
        pass
