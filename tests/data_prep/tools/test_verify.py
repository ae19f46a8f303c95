import json
import shutil

import h5py
import numpy as np
import pytest

from data_prep.shards.format import open_shards
from data_prep.shards.manifest import sha256_of
from data_prep.tools import verify as verify_module
from data_prep.tools.verify import verify
from tests.data_prep.small_shards import (
    change_manifest,
    random_documents,
    write_folder,
)


@pytest.fixture
def folder(tmp_path):
    documents = random_documents(60)
    return write_folder(tmp_path / "shards", {"train": documents, "valid": documents[:30]})


def change_rows(folder, name, change, *, honest=True):
    """Change the rows of a file, and what the manifest says of it."""
    file = folder / name
    with h5py.File(file, "r+") as shard:
        rows = shard["ids"][:]
        change(rows)
        shard["ids"][:] = rows
    if honest:
        change_manifest(
            folder,
            lambda content: [
                record.update(sha256=sha256_of(file))
                for split in content["splits"].values()
                for record in split["shards"]
                if record["file"] == name
            ],
        )


@pytest.mark.parametrize("bytes_per_read", [1, 100, 4 << 20])
def test_nothing_is_wrong_with_what_was_written(folder, bytes_per_read, monkeypatch):
    monkeypatch.setattr(verify_module, "BYTES_PER_READ", bytes_per_read)
    assert verify(folder) == []


def test_changed_rows_are_found_that_opening_does_not_find(folder):
    def change(rows):
        rows[0, 5] ^= 1

    change_rows(folder, "train-00000.h5", change, honest=False)
    open_shards(folder)
    (problem,) = verify(folder)
    place = f"{folder}/train-00000.h5"
    assert problem.startswith(f"{place}: the content has changed since it was written; ")
    assert "tupelo data repair" in problem


@pytest.mark.parametrize(
    ("row", "column", "token", "expected"),
    [
        (3, 5, 105, "ids beyond the vocabulary"),
        (3, 0, 9, "rows that are not [CLS] ... [SEP]"),
        (3, -1, 9, "rows that are not [CLS] ... [SEP]"),
        (-1, 5, 0, "[PAD] inside a row"),
        (-1, 5, 2, "[CLS] inside a row"),
        (-1, 5, 4, "[MASK] inside a row"),
    ],
)
@pytest.mark.parametrize("bytes_per_read", [32, 4 << 20])
def test_rows_that_no_tokenizer_makes_are_found(
    folder, row, column, token, expected, bytes_per_read, monkeypatch
):
    def change(rows):
        rows[row, column] = token

    monkeypatch.setattr(verify_module, "BYTES_PER_READ", bytes_per_read)
    change_rows(folder, "train-00001.h5", change)
    (problem,) = verify(folder)
    assert problem.startswith(f"{folder}/train-00001.h5: holds {expected}; ")


@pytest.mark.parametrize("token", [1, 3])
def test_separators_and_unknown_tokens_may_stand_in_a_row(folder, token):
    def change(rows):
        rows[:, 5] = token

    change_rows(folder, "train-00001.h5", change)
    assert verify(folder) == []


def test_every_broken_file_is_named_with_what_is_wrong_with_it(folder):
    (folder / "train-00000.h5").unlink()
    file = folder / "train-00002.h5"
    file.write_bytes(file.read_bytes()[:-1])
    first, second = verify(folder)
    assert f"{folder}/train-00000.h5: no such file" in first
    assert "train-00002.h5: " in second and "bytes instead of" in second


def test_a_linked_folder_is_no_problem(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert verify(tmp_path / "link") == []


def test_a_file_with_fewer_rows_than_the_others_is_a_problem(folder):
    smaller = write_folder(folder.parent / "smaller", {"train": random_documents(60)[:9]})
    shutil.copy(smaller / "train-00000.h5", folder)
    record = json.loads((smaller / "manifest.json").read_text())["splits"]["train"]["shards"][0]
    change_manifest(folder, lambda content: content["splits"]["train"]["shards"][0].update(record))
    problems = verify(folder)
    assert "row counts of train contradict each other" in problems[0]
    assert f"train-00000.h5: {record['rows']} rows instead of" in problems[1]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"vocabulary_size": 70_000}, "uint16 cannot hold 70000 ids"),
        ({"special_tokens": {"cls": 2, "sep": 3}}, "no id for 'mask' among the 105 of"),
        ({"special_tokens": {"cls": 2, "sep": 3, "mask": 105}}, "no id for 'mask' among the 105"),
    ],
)
def test_a_manifest_that_does_not_fit_its_tokenizer_is_a_problem(folder, change, expected):
    change_manifest(folder, lambda content: content["tokenizer"].update(change))
    (problem,) = verify(folder)
    assert f"{folder}/manifest.json: " in problem
    assert expected in problem


def test_an_unreadable_manifest_is_the_only_problem(folder):
    (folder / "manifest.json").write_text("{")
    (problem,) = verify(folder)
    assert "not JSON" in problem


def test_memory_does_not_grow_with_the_file(tmp_path):
    import tracemalloc

    rows = [np.full(20_000, 50).tolist() for _ in range(400)]  # 16 MB
    folder = write_folder(tmp_path / "large", {"train": rows}, max_rows_per_shard=10**9)
    assert (folder / "train-00000.h5").stat().st_size > 3 * verify_module.BYTES_PER_READ
    tracemalloc.start()
    assert verify(folder) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * verify_module.BYTES_PER_READ
