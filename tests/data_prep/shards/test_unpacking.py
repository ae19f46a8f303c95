import pytest

from data_prep.shards import unpacking as module
from data_prep.shards.format import open_shards
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
