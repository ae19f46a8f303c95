import itertools

import numpy as np
import pytest

from data_prep import packing
from data_prep.packing import pack, unpack

CLS, SEP = 2, 3


def packed(documents, length):
    return np.concatenate(list(pack(documents, length, cls_id=CLS, sep_id=SEP, dtype=np.uint16)))


@pytest.fixture
def documents():
    lengths = np.random.default_rng(0).integers(1, 60, 50)
    numbers = itertools.count(5)
    return [list(itertools.islice(numbers, length)) for length in lengths]


@pytest.mark.parametrize("tokens_per_group", [1, 100, 1 << 20])
def test_unpacking_gives_back_the_documents_with_separators(
    documents, tokens_per_group, monkeypatch
):
    monkeypatch.setattr(packing, "TOKENS_PER_GROUP", tokens_per_group)
    stream = documents[0] + [t for document in documents[1:] for t in [SEP, *document]]
    found = unpack(packed(documents, 16)).tolist()
    assert found == stream[: len(found)]
    assert 0 <= len(stream) - len(found) < 14


def test_every_row_begins_with_cls_and_ends_with_sep_and_is_full(documents):
    rows = packed(documents, 16)
    assert rows.dtype == np.uint16
    assert (rows[:, 0] == CLS).all()
    assert (rows[:, -1] == SEP).all()
    assert (rows[:, 1:-1] != 0).all()


def test_too_few_tokens_give_no_row():
    assert packed([[5, 6], [7]], 16).shape == (0, 16)
