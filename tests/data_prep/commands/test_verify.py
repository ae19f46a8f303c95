import json
import shutil

import h5py
import pytest

from data_prep.commands.verify import verify
from data_prep.shards.format import open_shards
from tests.data_prep.small_shards import (
    change_manifest,
    random_documents,
    write_folder,
)


@pytest.fixture
def folder(tmp_path):
    documents = random_documents(60)
    return write_folder(tmp_path / "shards", {"train": documents, "valid": documents[:30]})


def test_nothing_is_wrong_with_what_was_written(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert verify(folder) == verify(tmp_path / "link") == []


def test_changed_rows_are_found_that_opening_does_not_find(folder):
    with h5py.File(folder / "train-00000.h5", "r+") as shard:
        shard["ids"][0, 5] ^= 1
    open_shards(folder)
    (problem,) = verify(folder)
    place = f"{folder}/train-00000.h5"
    assert problem.startswith(f"{place}: the content has changed since it was written; ")
    assert "tupelo data repair" in problem


def test_every_broken_file_is_named_with_what_is_wrong_with_it(folder):
    (folder / "train-00000.h5").unlink()
    file = folder / "train-00002.h5"
    file.write_bytes(file.read_bytes()[:-1])
    first, second = verify(folder)
    assert f"{folder}/train-00000.h5: no such file" in first
    assert "train-00002.h5: " in second and "bytes instead of" in second


def test_a_file_with_fewer_rows_than_the_others_is_a_problem(folder):
    smaller = write_folder(folder.parent / "smaller", {"train": random_documents(60)[:9]})
    shutil.copy(smaller / "train-00000.h5", folder)
    record = json.loads((smaller / "manifest.json").read_text())["splits"]["train"]["shards"][0]
    change_manifest(folder, lambda content: content["splits"]["train"]["shards"][0].update(record))
    (problem,) = verify(folder)
    assert "sequence counts contradict each other" in problem
