import json
import multiprocessing
import pickle
import shutil

import h5py
import numpy as np
import pytest

from data_prep.shards import (
    Manifest,
    ShardError,
    SplitRecord,
    TokenizerRecord,
    open_shards,
    sha256_of,
    verify,
    write_manifest,
    write_shards,
)

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def written(folder, rows, *, tokenizer_text="{}", vocabulary_size=70_000, max_rows_per_shard=10):
    """Write rows as both splits of a shard folder."""
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer_text)
    tokenizer = TokenizerRecord(
        kind="bpe",
        sha256=sha256_of(folder / "tokenizer.json"),
        vocabulary_size=vocabulary_size,
        special_tokens=SPECIAL,
    )
    splits = {}
    for name in ("train", "valid"):
        shards = write_shards(
            folder,
            name,
            rows,
            max_rows_per_shard=max_rows_per_shard,
            tokenizer_sha256=tokenizer.sha256,
        )
        num_rows = sum(shard.rows for shard in shards)
        splits[name] = SplitRecord(
            documents=1,
            words=1,
            sentences=1,
            tokens=rows.size,
            rows=num_rows,
            rows_per_shard=shards[0].rows,
            rows_dropped=len(rows) - num_rows,
            shards=shards,
        )
    manifest = Manifest(
        sequence_length=rows.shape[1],
        dtype=rows.dtype.name,
        tokenizer=tokenizer,
        splits=splits,
        settings={},
        source="a test",
        licence="none",
    )
    write_manifest(folder, manifest)
    return folder


def random_rows(num_rows, largest, dtype):
    rows = np.random.default_rng(0).integers(5, largest, (num_rows, 12)).astype(dtype)
    rows[:, 0], rows[:, -1] = 2, 3
    return rows


@pytest.fixture
def folder(built, tmp_path):
    """A copy of built shards, to be damaged."""
    return shutil.copytree(built, tmp_path / "copy")


@pytest.mark.parametrize(("largest", "dtype"), [(60_000, np.uint16), (70_000, np.uint32)])
def test_rows_are_read_as_they_were_written(tmp_path, largest, dtype):
    rows = random_rows(43, largest, dtype)
    split = open_shards(written(tmp_path / "shards", rows)).split("train")
    # 5 shards of 8 rows; the last 3 rows do not fill one more in each.
    assert split.num_rows == 40
    indices = np.random.default_rng(1).permutation(40).astype(np.uint32)
    found = split.rows(indices)
    assert found.dtype == dtype
    assert (found == rows[indices]).all()
    assert verify(tmp_path / "shards") == []


def test_rows_are_one_contiguous_dataset_tied_to_the_tokenizer(built):
    manifest = open_shards(built).manifest
    with h5py.File(built / "train-00000.h5") as shard:
        assert shard["ids"].chunks is None
        assert shard["ids"].dtype == np.uint16
        assert shard.attrs["tokenizer_sha256"] == sha256_of(built / "tokenizer.json")
        assert shard.attrs["sequence_length"] == shard["ids"].shape[1] == manifest.sequence_length


def test_shards_of_a_split_have_equal_rows(built):
    for split in open_shards(built).manifest.splits.values():
        assert {shard.rows for shard in split.shards} == {split.rows_per_shard}
        assert split.rows == split.rows_per_shard * len(split.shards)
        assert split.rows_dropped < len(split.shards)


def test_no_row_can_be_read_beyond_the_ends(built):
    split = open_shards(built).split("valid")
    for index in (-1, split.num_rows):
        with pytest.raises(IndexError, match="row numbers must lie in"):
            split.rows(np.array([0, index]))
    assert split.rows(np.array([], np.int64)).shape == (0, 16)


def test_a_split_can_be_read_in_a_spawned_process(built):
    split = open_shards(built).split("train")
    indices = np.arange(0, split.num_rows, 7)
    expected = split.rows(indices)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert (pool.apply(split.rows, (indices,)) == expected).all()


def test_a_pickled_split_carries_no_rows(built):
    split = open_shards(built).split("train")
    untouched = len(pickle.dumps(split))
    split.rows(np.arange(split.num_rows))
    assert len(pickle.dumps(split)) == untouched


def test_the_fingerprint_is_that_of_the_rows_and_the_tokenizer(built, tmp_path):
    shards = open_shards(built)
    assert shards.split("train").fingerprint() == open_shards(built).split("train").fingerprint()
    assert shards.split("train").fingerprint() != shards.split("valid").fingerprint()
    rows = random_rows(20, 100, np.uint16)
    first = open_shards(written(tmp_path / "first", rows)).split("train").fingerprint()
    rows[0, 5] += 1
    assert open_shards(written(tmp_path / "second", rows)).split("train").fingerprint() != first


def assert_refused(folder, message):
    with pytest.raises(ShardError, match=message) as refused:
        open_shards(folder)
    assert "\n" not in str(refused.value)
    assert str(refused.value) in verify(folder)


def test_a_shard_cut_short_is_an_error(folder):
    file = folder / "train-00001.h5"
    file.write_bytes(file.read_bytes()[:-100])
    assert_refused(folder, r"train-00001\.h5: \d+ bytes instead of \d+; build")


def test_a_missing_shard_is_an_error(folder):
    (folder / "valid-00000.h5").unlink()
    assert_refused(folder, r"valid-00000\.h5: no such file")


def test_a_shard_that_is_not_hdf5_is_an_error(folder):
    file = folder / "valid-00000.h5"
    file.write_bytes(b"x" * file.stat().st_size)
    assert_refused(folder, r"valid-00000\.h5: not a readable shard")


def test_a_shard_of_another_tokenizer_is_an_error(tmp_path):
    rows = random_rows(20, 100, np.uint16)
    folder = written(tmp_path / "shards", rows)
    other = written(tmp_path / "other", rows, tokenizer_text="[]")
    shutil.copy(other / "train-00000.h5", folder)
    assert_refused(folder, r"train-00000\.h5: made with another tokenizer")


def test_another_tokenizer_file_is_an_error(folder):
    (folder / "tokenizer.json").write_text("{}")
    assert_refused(folder, r"tokenizer\.json: not the tokenizer that made these shards")
    (folder / "tokenizer.json").unlink()
    assert_refused(folder, r"tokenizer\.json: no such file")


def changed_manifest(folder, change):
    content = json.loads((folder / "manifest.json").read_text())
    change(content)
    (folder / "manifest.json").write_text(json.dumps(content))


def test_rows_of_another_length_are_an_error(folder):
    changed_manifest(folder, lambda content: content.update(sequence_length=32))
    assert_refused(folder, r"holds uint16 \(\d+, 16\) instead of contiguous uint16 \(\d+, 32\)")


def test_a_missing_manifest_is_an_error(folder, tmp_path):
    (folder / "manifest.json").unlink()
    assert_refused(folder, r"manifest\.json: no such file")
    assert_refused(tmp_path / "nowhere", r"manifest\.json: no such file")


def test_a_damaged_or_foreign_manifest_is_an_error(folder):
    changed_manifest(folder, lambda content: content.update(version=2))
    assert_refused(folder, r"manifest\.json: version: Input should be 1")
    (folder / "manifest.json").write_text("{")
    assert_refused(folder, r"manifest\.json: the whole file: Invalid JSON")


def test_verify_finds_changed_rows_that_opening_does_not(folder):
    file = folder / "train-00000.h5"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    open_shards(folder)
    assert verify(folder) == [
        f"{file}: the content has changed since it was written; build the folder again"
    ]


def test_verify_finds_ids_beyond_the_vocabulary_and_rows_without_ends(tmp_path):
    rows = random_rows(5, 100, np.uint16)
    small = written(tmp_path / "small", rows, vocabulary_size=50)
    assert "holds ids beyond the vocabulary" in verify(small)[0]
    rows[0, 0] = 7
    assert "not [CLS] ... [SEP]" in verify(written(tmp_path / "ends", rows))[0]


def test_verify_finds_contradicting_counts(folder):
    changed_manifest(folder, lambda content: content["splits"]["train"].update(rows=1))
    assert verify(folder) == [f"{folder}/manifest.json: the row counts of train contradict"]
