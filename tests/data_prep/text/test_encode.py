import pytest
from tokenizers import pre_tokenizers

from data_prep.text import encode as encoding
from data_prep.text.encode import encode_documents
from data_prep.tokenizer.describe import record_of
from tests.data_prep.tokenizer.test_train import trained

KINDS = ["wordpiece", "bpe", "byte-bpe"]
DOCUMENTS = [
    ["The boats are boating. A boat floats!", "Second paragraph; boaters."],
    ["日本語。テキスト。", "Zürich, naïve 🙂 don't."],
    ["[MASK] is text"],
]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    found = {}
    for kind in KINDS:
        tokenizer = trained(kind)
        file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
        tokenizer.save(str(file))
        tokenizer.encode_special_tokens = True
        record = record_of(tokenizer, file, kind=kind)
        found[kind] = (file, record), tokenizer
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_is_its_paragraphs_joined_by_spaces(encoders, kind, monkeypatch):
    monkeypatch.setattr(encoding, "PIECES_PER_BATCH", 2)
    of_file, tokenizer = encoders[kind]
    found = encode_documents(DOCUMENTS, *of_file, splitter="sentencex", language="en")
    for document, encoded in zip(DOCUMENTS, found, strict=True):
        expected = tokenizer.encode(" ".join(document), add_special_tokens=False).ids
        assert encoded.tolist() == expected
    assert 4 not in found[2]


def test_pieces_follow_a_space_where_the_tokenizer_wants_one(tmp_path):
    # As RoBERTa does, it puts no space before the first word of a text.
    tokenizer = trained("byte-bpe")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    record = record_of(tokenizer, file, kind="loaded")
    assert record.joint == " "
    found = encode_documents(DOCUMENTS[:2], file, record, splitter="spacy", language="en")
    for document, encoded in zip(DOCUMENTS[:2], found, strict=True):
        expected = tokenizer.encode(" ".join(document), add_special_tokens=False).ids
        assert encoded.tolist() == expected
