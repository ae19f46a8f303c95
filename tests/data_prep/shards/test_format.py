import multiprocessing
import pickle
import shutil

import h5py
import numpy as np
import pytest

from data_prep.shards.format import open_shards, write_shard
from data_prep.shards.manifest import (
    Manifest,
    ShardError,
    SplitRecord,
    TokenizerRecord,
    sha256_of,
    write_manifest,
)
from tests.data_prep.small_shards import SPECIAL, change_manifest, random_documents, write_folder


def written(folder, rows, *, rows_per_shard=10):
    """Write rows as both splits of a shard folder, without packing."""
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    tokenizer = TokenizerRecord(
        kind="bpe",
        sha256=sha256_of(folder / "tokenizer.json"),
        vocabulary_size=70_000,
        special_tokens=SPECIAL,
    )
    splits = {}
    for name in ("train", "valid"):
        parts = np.split(rows, range(rows_per_shard, len(rows), rows_per_shard))
        shards = tuple(
            write_shard(
                folder / f"{name}-{number}.h5",
                [part[:1], part[1:]],
                shape=part.shape,
                dtype=part.dtype.name,
                tokenizer_sha256=tokenizer.sha256,
            )
            for number, part in enumerate(parts)
        )
        splits[name] = SplitRecord(
            documents=1,
            words=1,
            sentences=1,
            tokens=rows.size,
            rows=len(rows),
            rows_per_shard=rows_per_shard,
            rows_dropped=0,
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
def folder(tmp_path):
    documents = random_documents(40)
    return write_folder(tmp_path / "shards-folder", {"train": documents, "valid": documents[:20]})


@pytest.mark.parametrize(("largest", "dtype"), [(60_000, np.uint16), (70_000, np.uint32)])
def test_rows_are_read_as_they_were_written(tmp_path, largest, dtype):
    rows = random_rows(40, largest, dtype)
    split = open_shards(written(tmp_path / "shards", rows)).split("train")
    assert split.num_rows == 40
    indices = np.random.default_rng(1).permutation(40).astype(np.uint32)
    found = split.rows(indices)
    assert found.dtype == dtype
    assert (found == rows[indices]).all()


def test_rows_are_read_in_order_in_pieces_of_bounded_size(tmp_path):
    rows = random_rows(40, 100, np.uint16)
    split = open_shards(written(tmp_path / "shards", rows)).split("train")
    pieces = list(split.read_in_order([1, 3], max_rows=4))
    assert [len(piece) for piece in pieces] == [4, 4, 2, 4, 4, 2]
    assert (np.concatenate(pieces) == np.concatenate([rows[10:20], rows[30:40]])).all()


def test_rows_are_one_contiguous_dataset_tied_to_the_tokenizer(folder):
    manifest = open_shards(folder).manifest
    with h5py.File(folder / "train-00000.h5") as shard:
        assert shard["ids"].chunks is None
        assert shard["ids"].dtype == np.uint16
        assert shard.attrs["tokenizer_sha256"] == sha256_of(folder / "tokenizer.json")
        assert shard.attrs["sequence_length"] == shard["ids"].shape[1] == manifest.sequence_length


def test_no_row_can_be_read_beyond_the_ends(folder):
    split = open_shards(folder).split("valid")
    for index in (-1, split.num_rows):
        with pytest.raises(IndexError, match="row numbers must lie in"):
            split.rows(np.array([0, index]))
    assert split.rows(np.array([], np.int64)).shape == (0, 16)


def test_a_split_can_be_read_in_a_spawned_process(folder):
    split = open_shards(folder).split("train")
    indices = np.arange(0, split.num_rows, 7)
    expected = split.rows(indices)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert (pool.apply(split.rows, (indices,)) == expected).all()


def test_a_pickled_split_carries_no_rows(folder):
    split = open_shards(folder).split("train")
    untouched = len(pickle.dumps(split))
    split.rows(np.arange(split.num_rows))
    assert len(pickle.dumps(split)) == untouched


def test_the_fingerprint_is_that_of_the_rows_and_the_tokenizer(folder, tmp_path):
    shards = open_shards(folder)
    assert shards.split("train").fingerprint() == open_shards(folder).split("train").fingerprint()
    assert shards.split("train").fingerprint() != shards.split("valid").fingerprint()
    rows = random_rows(20, 100, np.uint16)
    first = open_shards(written(tmp_path / "first", rows)).split("train").fingerprint()
    rows[0, 5] += 1
    assert open_shards(written(tmp_path / "second", rows)).split("train").fingerprint() != first


def assert_refused(folder, message):
    with pytest.raises(ShardError, match=message) as refused:
        open_shards(folder)
    assert "\n" not in str(refused.value)


def cut_short(folder):
    file = folder / "train-00001.h5"
    file.write_bytes(file.read_bytes()[:-100])


def overwritten(folder):
    file = folder / "valid-00000.h5"
    file.write_bytes(b"x" * file.stat().st_size)


def with_other_counts(**change):
    def damage(folder):
        change_manifest(folder, lambda content: content["splits"]["train"].update(change))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_short, r"train-00001\.h5: \d+ bytes instead of \d+; .* repair"),
        (lambda folder: (folder / "valid-00000.h5").unlink(), r"valid-00000\.h5: no such file"),
        (overwritten, r"valid-00000\.h5: not a readable shard"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "not the tokenizer that"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json: no such file"),
        (
            lambda folder: change_manifest(folder, lambda it: it.update(sequence_length=32)),
            r"holds uint16 \(\d+, 16\) instead of contiguous uint16 \(\d+, 32\)",
        ),
        (with_other_counts(rows=1), r"manifest\.json: the sequence counts of train contradict"),
        (with_other_counts(rows_per_shard=3), "the sequence counts of train contradict"),
        (shutil.rmtree, r"manifest\.json: no such file or directory; build the shards"),
    ],
)
def test_a_folder_that_is_damaged_is_refused(folder, damage, message):
    damage(folder)
    assert_refused(folder, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"not JSON \(.*\); build the folder again"),
        (b'{"format": "other", "version": 2}', r"not the manifest of a shard folder"),
        (
            b'{"format": "tupelo-shards", "version": 1}',
            r"written by an older version of this program; build the folder again",
        ),
        (
            b'{"format": "tupelo-shards", "version": 3}',
            r"version 3, but this program reads version 2; update the program",
        ),
        (b'{"format": "tupelo-shards", "version": 2}', r"sequence_length: Field required"),
    ],
)
def test_a_damaged_manifest_or_one_of_another_format_is_an_error(folder, content, message):
    (folder / "manifest.json").write_bytes(content)
    assert_refused(folder, r"manifest\.json: " + message)


def test_a_split_that_is_not_there_is_an_error_that_says_how_to_make_it(tmp_path):
    folder = write_folder(tmp_path / "shards", {"train": random_documents(20)})
    with pytest.raises(ShardError, match="holds no valid sequences; .*tupelo data split"):
        open_shards(folder).split("valid")
