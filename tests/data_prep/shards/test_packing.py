import itertools

import numpy as np
import pytest

from data_prep.shards import packing
from data_prep.shards.format import SequenceFormat
from data_prep.shards.manifest import TokenizerRecord
from data_prep.shards.packing import TokenStream, TokenWriter, documents_of, write_split

CLS, SEP = 2, 3
TOKENIZER = TokenizerRecord(
    kind="wordpiece",
    sha256="0" * 64,
    vocabulary_size=60_000,
    special_tokens={"pad": 0, "unk": 1, "cls": CLS, "sep": SEP, "mask": 4},
)
FORMAT = SequenceFormat(16, TOKENIZER)
COUNTS = {"documents": 50, "words": 1, "tokens": 1}


@pytest.fixture
def documents():
    lengths = np.random.default_rng(0).integers(1, 60, 50)
    numbers = itertools.count(5)
    return [np.array(list(itertools.islice(numbers, length))) for length in lengths]


def stream_of(documents, folder, parts=4):
    """Return the documents as token files, one of them empty."""
    pieces, files = [documents[place::parts] for place in range(parts)] + [[]], []
    for place, piece in enumerate(pieces):
        writer = TokenWriter(folder / f"{place}.ids", TOKENIZER)
        for document in piece:
            writer.append(document)
        files += writer.close().files
    return TokenStream(tuple(files), "uint16"), list(itertools.chain(*pieces))


def sequences_in(records, folder):
    """Return the sequences as the files hold them: the last bytes of each."""
    ids = [np.frombuffer((folder / record.file).read_bytes(), np.uint16) for record in records]
    stored = zip(ids, records, strict=True)
    return np.concatenate([each[-record.rows * 16 :].reshape(-1, 16) for each, record in stored])


@pytest.mark.parametrize(("tokens_per_group", "longest"), [(1, 7), (100, 7), (1 << 20, 1000)])
def test_sequences_are_the_documents_with_separators(
    documents, tokens_per_group, longest, tmp_path, monkeypatch
):
    stream, in_order = stream_of(documents, tmp_path)
    monkeypatch.setattr(packing, "TOKENS_PER_GROUP", tokens_per_group)
    expected = list(itertools.chain(*([*document.tolist(), SEP] for document in in_order)))[:-1]
    assert stream.num_tokens == len(expected)
    split = write_split(tmp_path, "train", stream, FORMAT, longest=longest, counts=COUNTS)
    sequences = sequences_in(split.shards, tmp_path)
    assert (sequences[:, 0] == CLS).all()
    assert (sequences[:, -1] == SEP).all()
    assert sequences[:, 1:-1].ravel().tolist() == expected[: len(sequences) * 14]
    assert len(expected) // 14 - len(sequences) == split.rows_dropped < len(split.shards)
    assert len(split.shards) == -(-(len(expected) // 14) // longest)


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_documents_are_found_again_however_the_stream_is_cut(documents, tmp_path, size):
    stream, in_order = stream_of(documents, tmp_path)
    whole = np.concatenate(list(stream.read(0, stream.num_tokens)))
    pieces = [whole[first : first + size] for first in range(0, len(whole), size)]
    found = [document.tolist() for document in documents_of(pieces, SEP)]
    assert found == [document.tolist() for document in in_order]
