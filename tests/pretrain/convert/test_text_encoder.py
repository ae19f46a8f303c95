"""Words: rows of ids for texts and pairs, against the tokenizers library."""

import itertools

import pytest

from tests.pretrain.convert.small_tokenizers import (
    SENTENCES,
    like_roberta,
    text_encoder_of,
    trained,
)


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "byte-bpe"])
def text_encoder(request, tmp_path_factory):
    return text_encoder_of(trained(request.param), tmp_path_factory.mktemp("words"))


def test_a_mask_stands_for_a_word_and_nothing_around_it_changes(text_encoder):
    whole = text_encoder.ids("The parser reads names.")
    masked = text_encoder.ids("The parser [MASK] names.")
    place, hidden = masked.index(text_encoder.special["mask"]), len(whole) - len(masked) + 1
    assert hidden > 0
    assert masked[:place] + masked[place + 1 :] == whole[:place] + whole[place + hidden :]


def test_a_pair_with_a_mask_is_its_two_texts(text_encoder):
    first, second = "The parser reads names.", "It [MASK] nothing."
    mask, sep = text_encoder.special["mask"], text_encoder.special["sep"]
    row = text_encoder.ids(first, second)
    assert row[: row.index(sep) + 1] == text_encoder.ids(first)
    assert row[row.index(sep) + 1 :] == text_encoder.ids(second)[1:] and row.count(mask) == 1


def test_names_of_special_tokens_in_a_text_are_these_tokens(text_encoder):
    ids = text_encoder.ids("a [SEP] [CLS] [MASK] [UNK] a")
    names = ["[CLS]", "[SEP]", "[CLS]", "[MASK]", "[UNK]", "[SEP]"]
    expected = [text_encoder.tokenizer.token_to_id(name) for name in names]
    assert [number for number in ids if number in text_encoder.special.values()] == expected


def test_the_longer_text_is_cut_first_as_in_the_tokenizers_library(text_encoder):
    text = SENTENCES[0] + SENTENCES[1]
    for shares in itertools.product((1, 2, 5, 9, 14), repeat=2):
        first, second = (" ".join(text.split()[:share]) for share in shares)
        for max_length in (8, 9, 12, 15, 64):
            ours = text_encoder.ids(first, second, max_length=max_length)
            text_encoder.tokenizer.enable_truncation(max_length)
            theirs = text_encoder.tokenizer.encode(first, second).ids
            text_encoder.tokenizer.no_truncation()
            assert ours == theirs, (shares, max_length)


def test_moses_comes_before_the_tokenizer_where_it_did_in_the_shards(tmp_path):
    text_encoder = text_encoder_of(trained("wordpiece", moses="en"), tmp_path, moses="en")
    words = "reads a file , names . a boat ."  # a full stop is a word at the end of a sentence only
    expected = text_encoder.tokenizer.encode(words, add_special_tokens=False).ids
    assert text_encoder.ids(" reads a file, names. a boat.", max_length=99)[1:-1] == expected


@pytest.mark.parametrize(("moses", "expected"), [(None, ",Ġnames"), ("en", "Ġ,Ġnames")])
def test_a_comma_after_a_mask_is_the_one_after_a_word(tmp_path, moses, expected):
    """Of a tokenizer to which a space matters; Moses sets the comma apart."""
    text_encoder = text_encoder_of(like_roberta(), tmp_path, moses=moses)
    assert text_encoder.record.joint == " "
    assert " " not in {"a file"[begin] for begin, _ in text_encoder.pieces("a file")[1]}
    tokens = [
        text_encoder.tokenizer.id_to_token(number) for number in text_encoder.ids("a [MASK], names")
    ]
    assert "".join(tokens) == f"<s>a<mask>{expected}</s>"
