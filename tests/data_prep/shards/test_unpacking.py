import pytest

from data_prep.shards import unpacking as module
from data_prep.shards.format import open_shards
from data_prep.shards.manifest import read_manifest, write_manifest
from data_prep.shards.unpacking import stored_documents
from tests.data_prep.small_shards import (
    cut_at_separators,
    random_documents,
    tokens_of,
    write_folder,
)


@pytest.mark.parametrize("tokens_per_group", [1, 100, 1 << 20])
def test_the_documents_of_the_rows_are_those_that_were_written(
    tmp_path, tokens_per_group, monkeypatch
):
    monkeypatch.setattr(module, "TOKENS_PER_GROUP", tokens_per_group)
    documents = random_documents(60)
    shards = open_shards(write_folder(tmp_path / "shards", {"train": documents}))
    found = [document.ids.tolist() for document in stored_documents(shards, "train")]
    assert found == cut_at_separators(tokens_of(shards, "train"))
    assert found[:-1] == documents[: len(found) - 1]
    cut = [document.may_be_cut for document in stored_documents(shards, "train")]
    assert cut == [False] * (len(found) - 1) + [True]


def drop(folder, name):
    """Remove a file of the training rows from the manifest."""
    manifest = read_manifest(folder)
    split = manifest.splits["train"]
    shards = tuple(record for record in split.shards if record.file != name)
    rows = split.rows_per_shard * len(shards)
    splits = {"train": split.model_copy(update={"shards": shards, "rows": rows})}
    write_manifest(folder, manifest.model_copy(update={"splits": splits}))


def test_documents_on_the_two_sides_of_a_dropped_file_are_not_joined(tmp_path):
    folder = write_folder(tmp_path / "shards", {"train": random_documents(60)})
    whole = open_shards(folder)
    per_shard = whole.manifest.splits["train"].rows_per_shard * 14
    tokens = tokens_of(whole, "train")
    drop(folder, "train-00001.h5")
    expected = cut_at_separators(tokens[:per_shard])
    expected += [text for text in cut_at_separators(tokens[2 * per_shard :]) if text]
    shards = open_shards(folder)
    found = list(stored_documents(shards, "train"))
    assert [document.ids.tolist() for document in found] == expected
    assert sum(document.may_be_cut for document in found) == 2
