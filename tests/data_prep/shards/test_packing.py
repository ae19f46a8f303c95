import itertools

import numpy as np
import pytest

from data_prep.shards import packing
from data_prep.shards.manifest import TokenizerRecord
from data_prep.shards.packing import (
    RowFormat,
    TokenStream,
    documents_of,
    id_type,
    rows_dropped,
    shard_tasks,
    unpack,
    write_documents,
)

CLS, SEP = 2, 3
TOKENIZER = TokenizerRecord(
    kind="wordpiece",
    sha256="0" * 64,
    vocabulary_size=60_000,
    special_tokens={"pad": 0, "unk": 1, "cls": CLS, "sep": SEP, "mask": 4},
)


@pytest.fixture
def documents():
    lengths = np.random.default_rng(0).integers(1, 60, 50)
    numbers = itertools.count(5)
    return [np.array(list(itertools.islice(numbers, length))) for length in lengths]


def stream_of(documents, folder, parts=4):
    """Return the documents as token files, one of them empty."""
    pieces = [documents[place::parts] for place in range(parts)] + [[]]
    files = [
        write_documents(folder / f"{place}.ids", piece, SEP, "uint16")
        for place, piece in enumerate(pieces)
    ]
    return TokenStream(tuple(files), "uint16"), list(itertools.chain(*pieces))


def rows_in(tasks, folder):
    """Return the rows as the files hold them: the last bytes of each."""
    rows = []
    for task in tasks:
        record = task.write(folder)
        ids = np.frombuffer((folder / record.file).read_bytes(), np.uint16)
        rows.append(ids[-record.rows * 16 :].reshape(-1, 16))
    return np.concatenate(rows)


@pytest.mark.parametrize("tokens_per_group", [1, 100, 1 << 20])
@pytest.mark.parametrize("max_rows_per_shard", [7, 1000])
def test_unpacking_gives_back_the_documents_with_separators(
    documents, tokens_per_group, max_rows_per_shard, tmp_path, monkeypatch
):
    monkeypatch.setattr(packing, "TOKENS_PER_GROUP", tokens_per_group)
    stream, in_order = stream_of(documents, tmp_path)
    expected = list(itertools.chain(*([*document.tolist(), SEP] for document in in_order)))[:-1]
    assert stream.num_tokens == len(expected)
    row_format = RowFormat.of(TOKENIZER, 16)
    tasks = shard_tasks("train", stream, row_format, max_rows_per_shard=max_rows_per_shard)
    rows = rows_in(tasks, tmp_path)
    assert (rows[:, 0] == CLS).all()
    assert (rows[:, -1] == SEP).all()
    assert unpack(rows).tolist() == expected[: len(rows) * 14]
    assert len(expected) // 14 - len(rows) == rows_dropped(tasks) < len(tasks)
    assert {task.num_rows for task in tasks} == {len(rows) // len(tasks)}
    assert len(tasks) == -(-(len(expected) // 14) // max_rows_per_shard)


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_documents_are_found_again_however_the_stream_is_cut(documents, tmp_path, size):
    stream, in_order = stream_of(documents, tmp_path)
    whole = np.concatenate(list(stream.read(0, stream.num_tokens)))
    pieces = [whole[first : first + size] for first in range(0, len(whole), size)]
    found = [document.tolist() for document in documents_of(pieces, SEP)]
    assert found == [document.tolist() for document in in_order]


def test_any_part_of_a_stream_can_be_read(documents, tmp_path):
    stream, _ = stream_of(documents, tmp_path)
    whole = np.concatenate(list(stream.read(0, stream.num_tokens)))
    for first, end in ((0, 1), (5, 700), (300, 301), (len(whole) - 9, len(whole)), (4, 4)):
        read = list(stream.read(first, end))
        assert np.array_equal(np.concatenate([*read, whole[:0]]), whole[first:end])


def test_too_few_tokens_give_no_file(tmp_path):
    stream, _ = stream_of([np.array([5, 6]), np.array([7])], tmp_path)
    assert shard_tasks("train", stream, RowFormat.of(TOKENIZER, 16), max_rows_per_shard=9) == []
    empty = TokenStream((), "uint16")
    assert shard_tasks("train", empty, RowFormat.of(TOKENIZER, 16), max_rows_per_shard=9) == []


def test_ids_are_stored_in_the_smallest_type_that_holds_them():
    assert [id_type(size) for size in (200, 65536, 65537)] == ["uint16", "uint16", "uint32"]
