"""A build that is stopped, by any cause at any step, ends with the bytes of one that was not."""

import errno
import gzip
import itertools
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_prep.files import atomic
from data_prep.pipeline import build as build_module
from data_prep.pipeline.build import build
from data_prep.shards import format as shard_format
from data_prep.shards.manifest import ShardError
from data_prep.sources.source import CorpusError
from tests.data_prep.small_shards import contents


class Stopped(BaseException):
    """Like a kill: no reader catches it."""


def stop_at(monkeypatch, call, error):
    """Make the n-th file that is completed fail instead, just before or just after."""
    calls = itertools.count()
    original = atomic.replace

    def replace(partial, file):
        number = next(calls)
        if number == call and call % 2 == 0:
            raise error
        original(partial, file)
        if number == call:
            raise error

    for module in (atomic, shard_format):
        monkeypatch.setattr(module, "replace", replace)


def stop(settings, folder, call, *, segment_bytes=200):
    """Build up to the n-th file that is completed, and return what is there then."""
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, call, Stopped())
        with pytest.raises(Stopped):
            build(settings, folder, workers=1, segment_bytes=segment_bytes)
    return sorted((folder.parent / f"{folder.name}.building" / "segments").glob("*.json"))


def assert_ends_as_straight(settings, folder, **options):
    """Check that the next call ends with the bytes of a build that was not stopped."""
    straight = folder.with_name("straight")
    for each in (folder, straight):
        build(settings, each, workers=1, **options)
    assert contents(folder) == contents(straight)
    assert not folder.with_name(f"{folder.name}.building").exists()


def test_a_build_stopped_at_any_of_its_steps_resumes(few, tmp_path, monkeypatch):
    build(few, tmp_path / "straight", workers=1, segment_bytes=5000)
    expected = contents(tmp_path / "straight")
    for call in itertools.count():
        folder = tmp_path / f"stopped-{call}"
        with monkeypatch.context() as patched:
            # A full disk is a cause like any other, and one clear line.
            full = OSError(errno.ENOSPC, "No space left on device")
            stop_at(patched, call, full if call % 5 == 3 else Stopped())
            try:
                build(few, folder, workers=1, segment_bytes=5000)
                break  # there are not that many steps
            except (Stopped, ShardError) as stopped:
                no_space = "cannot be written (No space left on device); free some space and give"
                assert isinstance(stopped, Stopped) or no_space in str(stopped)
                assert not folder.exists()
        build(few, folder, workers=1, segment_bytes=3000)
        assert contents(folder) == expected, f"stopped at step {call}"
        assert not folder.with_name(f"{folder.name}.building").exists()
    assert call > 9


def test_finished_parts_are_not_repeated_and_are_reported(few, tmp_path, capsys):
    folder = tmp_path / "shards"
    found = stop(few, folder, 21, segment_bytes=1000)
    note = f"note: finished parts are kept in {folder}.building; the same command goes on\n"
    assert capsys.readouterr().err.endswith(note)
    before = {file: file.stat().st_mtime_ns for file in found}
    stop(few, folder, 1)
    assert {file: file.stat().st_mtime_ns for file in before} == before
    read, encoded = ([f for f in found if kind in f.name] for kind in (".read.", ".encoded."))
    assert len(read) > 3 and encoded
    message = f"{len(read)} parts of the text read, {len(encoded)} encoded"
    assert f"resuming {folder}.building: {message}" in capsys.readouterr().err


def test_another_build_in_the_same_place_is_refused(few, tmp_path):
    folder = tmp_path / "shards"
    stop(few, folder, 3)
    other = few.model_copy(update={"sequence_length": 32})
    with pytest.raises(ShardError, match="something else .sequence_length was 16 and is 32"):
        build(other, folder, workers=1)
    file = tmp_path / "shards.building" / "identity.json"
    content = file.read_text()
    identity = json.loads(content)
    assert identity["libraries"].keys() == {"tokenizers", "h5py", "sentencex"}
    identity["libraries"]["tokenizers"] = "0.1"
    file.write_text(json.dumps(identity))
    with pytest.raises(ShardError, match="tokenizers was '0.1' and is"):
        build(few, folder, workers=1)
    file.write_text(content)
    with (tmp_path / "text.txt").open("a") as text:
        text.write("\n\nA line that came too late for this build.\n")
    with pytest.raises(
        ShardError, match=r"\(the files of .*text\.txt have changed since\); repeat"
    ):
        build(few, folder, workers=1)
    del identity["files"]
    file.write_text(json.dumps(identity))
    with pytest.raises(ShardError, match=r"something else \(begun by another version\)"):
        build(few, folder, workers=1)


@pytest.mark.parametrize("removed", ["content", "identity.json"])
def test_what_a_kill_while_a_build_was_cleaned_up_left_is_not_resumed(few, tmp_path, removed):
    assert "encoded" in stop(few, tmp_path / "shards", 13, segment_bytes=2000)[0].name
    place = tmp_path / "shards.building" / removed
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert_ends_as_straight(few, tmp_path / "shards")


def test_a_corpus_that_changes_while_it_is_read_is_refused_and_read_again(
    few, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(build_module, "WORTH_KEEPING", 1)
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
    assert "are kept" not in capsys.readouterr().err
    assert_ends_as_straight(few, tmp_path / "shards")


def test_damaged_files_can_be_skipped_when_a_build_resumes(few, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build_module, "WORTH_KEEPING", 3)
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes((tmp_path / "text.txt").read_bytes())
    whole = gzip.compress("\n\n".join(f"Last words {n}." for n in range(400)).encode())
    (folder / "b.txt.gz").write_bytes(whole[: len(whole) // 2])
    settings = few.model_copy(update={"corpus": (str(folder),)})
    with pytest.raises(ValueError, match=r"b\.txt\.gz.*--data.damaged_files skip"):
        build(settings, tmp_path / "shards", workers=1, segment_bytes=500)
    assert (tmp_path / "shards.building/segments/000003.read.json").exists()
    kept = f"note: finished parts are kept in {tmp_path / 'shards.building'}\n"
    assert capsys.readouterr().err.endswith(kept)
    assert_ends_as_straight(
        settings.model_copy(update={"damaged_files": "skip"}), tmp_path / "shards"
    )


def test_what_was_read_behind_a_gap_is_forgotten(few, tmp_path):
    other = few.model_copy(update={"language": "de"})
    first = stop(other, tmp_path / "shards", 7)[0]
    first.unlink()  # as by a kill, with several workers
    stop(few, tmp_path / "shards", 2)
    assert_ends_as_straight(few, tmp_path / "shards")


def test_what_workers_had_read_beyond_the_wanted_words_is_not_used(few, tmp_path):
    limited = few.model_copy(update={"max_words": 300})
    without = limited.model_copy(update={"max_words": None})
    stop(without, tmp_path / "shards", 12)  # reads on, as workers do
    file = tmp_path / "shards.building" / "identity.json"
    file.write_text(file.read_text().replace('"max_words": null', '"max_words": 300'))
    assert_ends_as_straight(limited, tmp_path / "shards", segment_bytes=200)


KILLED = """
import sys
from pathlib import Path
from data_prep.pipeline.build import build
from data_prep.settings import BuildSettings
if __name__ == '__main__':
    settings = BuildSettings.model_validate_json(sys.argv[1])
    build(settings, Path(sys.argv[2]), workers=2, segment_bytes=3000)
"""


@pytest.mark.ranks
def test_a_build_that_is_killed_with_two_workers_ends_with_the_same_bytes(
    settings, built, tmp_path
):
    killed = tmp_path / "killed"
    words = [sys.executable, "-c", KILLED, settings.model_dump_json(), str(killed)]
    process = subprocess.Popen(words)
    while not any((tmp_path / "killed.building" / "segments").glob("*.encoded.json")):
        assert process.poll() is None
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while any(Path("/proc", number).exists() for number in children):
        assert time.monotonic() < deadline, "workers outlive the main process"
        time.sleep(0.05)
    assert not killed.exists()
    build(settings, killed, workers=1)
    assert contents(killed) == contents(built)
