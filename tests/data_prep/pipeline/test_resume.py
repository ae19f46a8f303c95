"""A build that is stopped at any moment ends with the same bytes."""

import gzip
import itertools
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from data_prep.pipeline import build as build_module
from data_prep.pipeline.build import build
from data_prep.pipeline.segments import EncodeTask
from data_prep.shards.manifest import ShardError
from data_prep.shards.packing import TokenWriter
from data_prep.sources.source import CorpusError
from tests.data_prep.small_shards import contents


class Stopped(BaseException):
    """Like a kill: no reader catches it."""


class Disk:
    """Knows which content of each file has reached the disk; stops a build at a moment."""

    MOMENTS = (
        *((os, "fsync"), (Path, "replace"), (Path, "write_text"), (Path, "unlink")),
        *((np, "save"), (np, "savez"), (TokenWriter, "append"), (TokenWriter, "close")),
    )

    def __init__(self, patched, stop_at=None):
        self.synced, self.renamed, self.moments = {}, [], itertools.count()
        for place, name in self.MOMENTS:
            patched.setattr(place, name, self.watched(getattr(place, name), stop_at))

    def watched(self, original, stop_at):
        def call(*arguments, **options):
            if original.__name__ == "replace":
                self.renamed.append((arguments[1], self.unsynced(arguments[0])))
            found = original(*arguments, **options)
            if original.__name__ == "fsync":
                file = Path(f"/proc/self/fd/{arguments[0]}")
                self.synced[file.stat().st_ino] = b"" if file.is_dir() else file.read_bytes()
            if next(self.moments) == stop_at:
                raise Stopped
            return found

        return call

    def unsynced(self, place):
        """Return the files below a place whose content would be lost."""
        files = filter(Path.is_file, (place, *place.rglob("*")))
        return [file for file in files if self.synced.get(file.stat().st_ino) != file.read_bytes()]

    def cut_power(self, place, numbers):
        for file in self.unsynced(place):
            os.truncate(file, numbers.choice([0, numbers.randint(0, file.stat().st_size)]))


def stop(settings, folder, moment, *, segment_bytes=1000):
    """Build up to a moment, and return the disk; False if the build was finished before."""
    with pytest.MonkeyPatch.context() as patched:
        disk = Disk(patched, moment)
        try:
            build(settings, folder, workers=1, segment_bytes=segment_bytes)
        except Stopped:
            return disk
    return False


def assert_ends_as_straight(settings, folder, **options):
    """Check that the next call ends with the bytes of a build that was not stopped."""
    straight = folder.with_name("straight")
    for each in (folder, straight):
        build(settings, each, workers=1, **options)
    assert contents(folder) == contents(straight)
    assert not folder.with_name(f"{folder.name}.building").exists()


def test_the_files_of_a_step_have_reached_the_disk_before_its_record(few, tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    of_step = {"read": ("text", "counts.npz")}
    of_step["encoded"] = ("train.ids", "repeated.ids", "valid.ids")
    original, checked = disk.unsynced, set()

    def unsynced(place):
        number, kind, *_ = place.name.split(".") + [""]  # NUMBER.KIND.json.partial-PID
        files = [place.with_name(f"{number}.{name}") for name in of_step.get(kind, ())]
        checked.update(files)
        return original(place) + [lost for file in files for lost in original(file)]

    disk.unsynced = unsynced
    build(few, tmp_path / "shards", workers=1, segment_bytes=1000)
    assert len(checked) > 5
    assert [(place, lost) for place, lost in disk.renamed if lost] == []
    assert disk.renamed[-1][0] == tmp_path / "shards"


@pytest.fixture(scope="module")
def straight(settings, corpus, tmp_path_factory):
    """Settings of a small build, a folder with it, and one that was stopped while encoding."""
    folder = tmp_path_factory.mktemp("straight")
    (folder / "text.txt").write_text("\n\n".join(corpus.read_text().split("\n\n")[:16]))
    few = settings.model_copy(update={"corpus": (str(folder / "text.txt"),)})
    build(few, folder / "shards", workers=1, segment_bytes=1000)
    left, original = [1, 2], EncodeTask.run

    def run(task):
        if not left:
            raise Stopped
        left.pop()
        return original(task)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(EncodeTask, "run", run)
        build(few, folder / "half", workers=1, segment_bytes=1000)
    return few, folder


def test_a_kill_while_a_build_was_cleaned_up_begins_it_again(straight, tmp_path):
    settings, folder = straight
    half = shutil.copytree(folder / "half.building", tmp_path / "shards.building")
    shutil.rmtree(half / "content")
    build(settings, tmp_path / "shards", workers=1, segment_bytes=3000)
    assert contents(tmp_path / "shards") == contents(folder / "shards")


@pytest.mark.parametrize(
    "moments",
    [
        [33, 70, 110],
        pytest.param(
            [random.Random(0).randrange(130) for _ in range(20)],
            marks=pytest.mark.slow("twenty builds"),
        ),
    ],
    ids=["few", "many"],
)
def test_a_build_whose_power_is_cut_at_any_moment_resumes(straight, tmp_path, moments):
    settings, folder = straight
    numbers = random.Random(1)
    for moment in moments:
        place = tmp_path / f"stopped-{moment}-{numbers.random()}"
        disk = stop(settings, place, moment)
        assert disk and not place.exists()
        disk.cut_power(place.with_name(f"{place.name}.building"), numbers)
        build(settings, place, workers=1, segment_bytes=3000)
        assert contents(place) == contents(folder / "shards"), f"stopped at {moment}"
        assert not place.with_name(f"{place.name}.building").exists()


def test_finished_parts_are_not_repeated_and_are_reported(straight, tmp_path, capsys):
    settings, folder = straight
    half = shutil.copytree(folder / "half.building", tmp_path / "shards.building")
    before = {file: file.stat().st_mtime_ns for file in (half / "segments").glob("*.json")}
    stop(settings, tmp_path / "shards", 20)
    assert {file: file.stat().st_mtime_ns for file in before} == before
    read, encoded = ([f for f in before if kind in f.name] for kind in (".read.", ".encoded."))
    assert len(read) > 3 and len(encoded) == 2
    printed = capsys.readouterr().err
    assert f"resuming {half}: {len(read)} parts of the text read, 2 encoded" in printed
    assert printed.endswith(f"finished parts are kept in {half}; the same command goes on\n")


def test_another_build_in_the_same_place_is_refused(straight, tmp_path, monkeypatch):
    settings, folder = straight
    shutil.copytree(folder / "half.building", tmp_path / "shards.building")
    other = settings.model_copy(update={"sequence_length": 32})
    with pytest.raises(ShardError, match="something else .sequence_length was 16 and is 32"):
        build(other, tmp_path / "shards", workers=1)
    with monkeypatch.context() as patched:
        patched.setattr(build_module, "version", lambda name: "0.1")
        with pytest.raises(ShardError, match="tokenizers was '.*' and is '0.1'"):
            build(settings, tmp_path / "shards", workers=1)
    text = folder / "text.txt"
    times = text.stat()
    os.utime(text, ns=(0, 1))
    with pytest.raises(
        ShardError, match=r"\(the files of .*text\.txt have changed since\); repeat"
    ):
        build(settings, tmp_path / "shards", workers=1)
    os.utime(text, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_build_begun_by_an_earlier_version_is_begun_again(straight, tmp_path, capsys):
    settings, folder = straight
    half = shutil.copytree(folder / "half.building", tmp_path / "shards.building")
    for file in (half / "identity.json", *(half / "segments").glob("*.json")):
        file.write_text(f"its sha256\n{file.read_text()}")
    build(settings, tmp_path / "shards", workers=1)
    assert f"note: {half}: of an earlier version: built again" in capsys.readouterr().err
    assert contents(tmp_path / "shards") == contents(folder / "shards")


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
    assert [each.name for each in tmp_path.iterdir()] == ["text.txt"]


def test_damaged_files_can_be_skipped_when_a_build_resumes(few, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build_module, "WORTH_KEEPING", 3)
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes((tmp_path / "text.txt").read_bytes())
    whole = gzip.compress("\n\n".join(f"Last words {n}." for n in range(400)).encode())
    (folder / "b.txt.gz").write_bytes(whole[: len(whole) // 2])
    settings = few.model_copy(update={"corpus": (str(folder),)})
    with pytest.raises(ValueError, match=r"b\.txt\.gz.*--data.damaged_files skip"):
        build(settings, tmp_path / "shards", workers=1, segment_bytes=1000)
    assert (tmp_path / "shards.building/segments/000003.read.json").exists()
    kept = f"note: finished parts are kept in {tmp_path / 'shards.building'}\n"
    assert capsys.readouterr().err.endswith(kept)
    assert_ends_as_straight(
        settings.model_copy(update={"damaged_files": "skip"}), tmp_path / "shards"
    )


def test_what_workers_had_read_beyond_the_wanted_words_is_not_used(few, tmp_path):
    stop(few, tmp_path / "shards", 45)  # reads on, as workers do
    half = tmp_path / "shards.building"
    assert len(list((half / "segments").glob("*.read.json"))) == 5
    identity = build_module._Identity.load(half / "identity.json")
    changed = identity.model_copy(update={"settings": identity.settings | {"max_words": 300}})
    changed.save(half / "identity.json")
    assert_ends_as_straight(few.model_copy(update={"max_words": 300}), tmp_path / "shards")


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
@pytest.mark.slow("three processes that import the libraries of a build")
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
