import pytest

from data_prep.shards.format import open_shards
from data_prep.shards.manifest import ShardError
from data_prep.tools.split import hold_out_again
from data_prep.tools.verify import verify
from tests.data_prep.small_shards import (
    cut_at_separators,
    random_documents,
    stream_of,
    tokens_of,
    write_folder,
)


@pytest.fixture
def folder(tmp_path):
    splits = {"train": random_documents(100), "valid": random_documents(20, seed=1)}
    return write_folder(tmp_path / "old", splits)


def stored(folder):
    shards = open_shards(folder)
    names = [name for name in ("train", "valid") if name in shards.manifest.splits]
    return [document for name in names for document in cut_at_separators(tokens_of(shards, name))]


@pytest.mark.parametrize(("fraction", "p", "q"), [(0.1, 1, 10), (0.3, 3, 10), (0.25, 1, 4)])
def test_every_nth_document_of_all_is_held_out(folder, tmp_path, fraction, p, q):
    documents = stored(folder)
    manifest = hold_out_again(folder, tmp_path / "new", valid_fraction=fraction)
    held_out = [document for i, document in enumerate(documents) if i * p % q < p]
    others = [document for i, document in enumerate(documents) if i * p % q >= p]
    shards = open_shards(tmp_path / "new")
    for name, expected in (("train", others), ("valid", held_out)):
        stream = stream_of(expected)
        found = tokens_of(shards, name)
        assert found == stream[: len(found)]
        split = manifest.splits[name]
        assert len(stream) - len(found) < 14 * (1 + split.rows_dropped)
        assert split.documents == len(expected)
        assert split.tokens == sum(map(len, expected))
    assert verify(tmp_path / "new") == []
    assert shards.manifest == manifest
    assert {file.suffix for file in (tmp_path / "new").iterdir()} == {".h5", ".json"}


def test_repetitions_go_where_the_first_copy_goes(tmp_path):
    """Every training document is there two or three times, as a weight of 2.5 makes them."""
    once = random_documents(97)
    splits = {"train": [*once, *once, *once[::2]], "valid": random_documents(20, seed=1)}
    folder = write_folder(tmp_path / "repeated", splits)
    documents = stored(folder)
    sample = {tuple(document) for document in documents[::10]}
    first_places = {}
    for place, document in enumerate(documents):
        first_places.setdefault(tuple(document), place)
    expected = [document for document in documents if first_places[tuple(document)] % 10 == 0]
    manifest = hold_out_again(folder, tmp_path / "new", valid_fraction=0.1)
    shards = open_shards(tmp_path / "new")
    found = {
        name: {tuple(document) for document in cut_at_separators(tokens_of(shards, name))[:-1]}
        for name in ("train", "valid")
    }
    assert not found["train"] & found["valid"]
    assert len(sample) > len(set(map(tuple, expected))), "no repetition has a place of the sample"
    assert manifest.splits["valid"].documents == len(expected)
    assert tokens_of(shards, "valid") == stream_of(expected)[: len(tokens_of(shards, "valid"))]


def test_a_folder_without_held_out_sequences_gets_some(tmp_path):
    folder = write_folder(tmp_path / "old", {"train": random_documents(100)})
    hold_out_again(folder, tmp_path / "new", valid_fraction=0.1)
    assert open_shards(tmp_path / "new").split("valid").num_sequences > 0


def test_too_few_documents_for_a_sequence_are_an_error_and_leave_nothing(tmp_path):
    folder = write_folder(tmp_path / "old", {"train": [[9] * 3, [9] * 40]})
    with pytest.raises(ShardError, match=r"the valid split has 3 tokens in 1 documents, too few"):
        hold_out_again(folder, tmp_path / "new", valid_fraction=0.1)
    assert [place.name for place in tmp_path.iterdir()] == ["old"]
