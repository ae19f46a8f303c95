"""A build that is stopped, by any cause at any step, ends with the bytes of one that was not."""

import errno
import gzip
import itertools
import json
import subprocess
import sys
import time

import pytest

from data_prep.files import atomic
from data_prep.pipeline import build as build_module
from data_prep.pipeline import reading
from data_prep.pipeline.build import build
from data_prep.shards import format as shard_format
from data_prep.shards.manifest import ShardError
from data_prep.tokenizer.describe import TokenizerError
from tests.data_prep.small_shards import contents


class Stopped(BaseException):
    """Like a kill: nothing in the program catches it."""


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


def test_a_build_stopped_at_any_of_its_steps_resumes(few, tmp_path, monkeypatch):
    build(few, tmp_path / "straight", workers=1, segment_bytes=2000)
    expected = contents(tmp_path / "straight")
    for call in itertools.count():
        folder = tmp_path / f"stopped-{call}"
        with monkeypatch.context() as patched:
            stop_at(patched, call, Stopped())
            try:
                build(few, folder, workers=1, segment_bytes=2000)
                break  # there are not that many steps
            except Stopped:
                assert not folder.exists()
        build(few, folder, workers=1, segment_bytes=3000)
        assert contents(folder) == expected, f"stopped at step {call}"
        assert not folder.with_name(f"{folder.name}.building").exists()
    assert call > 20


def test_finished_parts_are_not_repeated_and_are_reported(settings, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "shards"
    with monkeypatch.context() as patched:
        stop_at(patched, 95, Stopped())
        with pytest.raises(Stopped):
            build(settings, folder, workers=1, segment_bytes=5_000)
    before = {
        file: file.stat().st_mtime_ns
        for file in (tmp_path / "shards.building").rglob("*.json")
        if file.name.endswith(("read.json", "encoded.json"))
    }
    read = [file for file in before if file.name.endswith("read.json")]
    assert len(read) > 3
    with monkeypatch.context() as patched:
        stop_at(patched, 1, Stopped())
        with pytest.raises(Stopped):
            build(settings, folder, workers=1, segment_bytes=5_000)
    assert {file: file.stat().st_mtime_ns for file in before} == before
    encoded = [file for file in before if file.name.endswith("encoded.json")]
    assert (
        f"resuming {folder}.building: {len(read)} parts of the text read, "
        f"{len(encoded)} parts encoded" in capsys.readouterr().err
    )


def test_a_full_disk_is_one_clear_line_and_the_build_resumes_afterwards(
    settings, tmp_path, monkeypatch
):
    build(settings, tmp_path / "straight", workers=1)
    for call in (0, 3, 6):
        folder = tmp_path / f"full-{call}"
        with monkeypatch.context() as patched:
            stop_at(patched, call, OSError(errno.ENOSPC, "No space left on device"))
            with pytest.raises(ShardError, match="no space left on the disk; free some and give"):
                build(settings, folder, workers=1)
        build(settings, folder, workers=1)
        assert contents(folder) == contents(tmp_path / "straight")


def test_another_build_in_the_same_place_is_refused(settings, tmp_path, monkeypatch):
    folder = tmp_path / "shards"
    with monkeypatch.context() as patched:
        stop_at(patched, 3, Stopped())
        with pytest.raises(Stopped):
            build(settings, folder, workers=1)
    other = settings.model_copy(update={"sequence_length": 32})
    with pytest.raises(ShardError, match="something else .sequence_length was 16 and is 32"):
        build(other, folder, workers=1)


def test_a_build_is_not_resumed_with_another_version_of_a_library(few, tmp_path):
    (record, *_) = read_up_to(few, tmp_path / "shards", 3)
    file = record.parents[1] / "identity.json"
    identity = json.loads(file.read_text())
    assert identity["libraries"].keys() == {"tokenizers", "h5py", "sentencex"}
    file.write_text(json.dumps(identity | {"libraries": {"tokenizers": "0.1"}}))
    with pytest.raises(ShardError, match="tokenizers was '0.1' and is"):
        build(few, tmp_path / "shards", workers=1)


def test_a_missing_tokenizer_is_an_error_before_anything_is_read(few, tmp_path):
    folder = tmp_path / "shards"
    wrong = few.model_copy(update={"tokenizer": str(tmp_path / "absent.json")})
    with pytest.raises(TokenizerError, match="no such file"):
        build(wrong, folder, workers=1)
    assert not (tmp_path / "shards.building").exists()
    build(few, folder, workers=1)
    loading = few.model_copy(update={"tokenizer": str(folder / "tokenizer.json")})
    build(loading, tmp_path / "loaded", workers=1)
    rows = ("train-00000.h5", "tokenizer.json", "valid-00000.h5")
    for name in rows:
        assert (tmp_path / "loaded" / name).read_bytes() == (folder / name).read_bytes()


def test_damaged_files_can_be_skipped_when_a_build_resumes(few, tmp_path, monkeypatch):
    monkeypatch.setattr(build_module, "WORTH_KEEPING", 3)
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes((tmp_path / "text.txt").read_bytes())
    whole = gzip.compress("\n\n".join(f"Last words {n}." for n in range(400)).encode())
    (folder / "b.txt.gz").write_bytes(whole[: len(whole) // 2])
    settings = few.model_copy(update={"corpus": (str(folder),)})
    with pytest.raises(ValueError, match=r"b\.txt\.gz.*--damaged-files skip"):
        build(settings, tmp_path / "shards", workers=1, segment_bytes=500)
    assert (tmp_path / "shards.building/segments/000003.read.json").exists()
    skipping = settings.model_copy(update={"damaged_files": "skip"})
    manifest = build(skipping, tmp_path / "shards", workers=1)
    assert [what for what in manifest.cleaning if what.startswith("skipped: file")]
    build(skipping, tmp_path / "straight", workers=1)
    assert contents(tmp_path / "shards") == contents(tmp_path / "straight")


def folder_of(tmp_path, *names):
    """Return a folder of text files, twelve documents each."""
    folder = tmp_path / "texts"
    folder.mkdir(exist_ok=True)
    for name in names:
        documents = (f"These are the words of document {n} of {name}." for n in range(12))
        (folder / f"{name}.txt").write_text("\n\n".join(documents))
    return folder


def read_up_to(settings, folder, num_segments):
    """Build until so many segments more are read, and stop."""
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, num_segments + 1, Stopped())  # the first file completed is the identity
        with pytest.raises(Stopped):
            build(settings, folder, workers=1, segment_bytes=200)
    records = sorted((folder.parent / f"{folder.name}.building/segments").glob("*.read.json"))
    assert len(records) >= num_segments
    return records


def test_a_file_that_is_added_to_a_source_that_was_read_is_read_too(few, corpus, tmp_path):
    texts, shards = folder_of(tmp_path, "a", "b"), tmp_path / "shards"
    settings = few.model_copy(update={"corpus": (str(texts), str(corpus))})
    read_up_to(settings, shards, 9)
    folder_of(tmp_path, "c")
    build(settings, shards, workers=1)
    build(settings, tmp_path / "straight", workers=1)
    assert contents(shards) == contents(tmp_path / "straight")


def test_what_was_read_behind_a_gap_is_forgotten_with_its_files(few, tmp_path):
    texts, shards = folder_of(tmp_path, *"abcdef"), tmp_path / "shards"
    settings = few.model_copy(update={"corpus": (str(texts),)})
    read_up_to(settings, shards, 12)[5].unlink()  # as by a kill, with several workers
    for name in "def":
        (texts / f"{name}.txt").unlink()
    read_up_to(settings, shards, 2)
    build(settings, shards, workers=1)
    build(settings, tmp_path / "straight", workers=1)
    assert contents(shards) == contents(tmp_path / "straight")


def test_another_build_in_the_place_of_one_without_a_first_part_gets_none_of_its_text(
    few, corpus, tmp_path
):
    shards = tmp_path / "shards"
    other = few.model_copy(update={"corpus": (str(folder_of(tmp_path, *"abc")),)})
    read_up_to(other, shards, 6)[0].unlink()  # as by a kill, with several workers
    read_up_to(few, shards, 1)
    build(few, shards, workers=1)
    build(few, tmp_path / "straight", workers=1)
    assert contents(shards) == contents(tmp_path / "straight")


def test_what_workers_had_read_beyond_the_wanted_words_is_not_used(few, tmp_path, monkeypatch):
    limited = few.model_copy(update={"max_words": 300})
    with monkeypatch.context() as patched:
        patched.setattr(reading, "_enough_words", lambda *_: False)  # as workers read ahead
        read_up_to(limited, tmp_path / "shards", 20)
    build(limited, tmp_path / "straight", workers=1, segment_bytes=200)
    build(limited, tmp_path / "shards", workers=1, segment_bytes=200)
    assert contents(tmp_path / "shards") == contents(tmp_path / "straight")


@pytest.mark.ranks
def test_a_build_that_is_killed_with_two_workers_ends_with_the_same_bytes(settings, tmp_path):
    killed, program = (
        tmp_path / "killed",
        "import sys\n"
        "from pathlib import Path\n"
        "from data_prep.pipeline.build import build\n"
        "from data_prep.settings import BuildSettings\n"
        "if __name__ == '__main__':\n"
        "    settings = BuildSettings.model_validate_json(sys.argv[1])\n"
        "    build(settings, Path(sys.argv[2]), workers=2, segment_bytes=3000)\n",
    )
    words = [sys.executable, "-c", program, settings.model_dump_json(), str(killed)]
    process = subprocess.Popen(words)
    while not any((tmp_path / "killed.building" / "segments").glob("*.encoded.json")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not killed.exists()
    build(settings, killed, workers=1)
    build(settings, tmp_path / "straight", workers=1)
    assert contents(killed) == contents(tmp_path / "straight")
