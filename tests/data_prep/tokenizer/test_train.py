import collections
import json
import subprocess
import sys

import pytest
from tokenizers import normalizers

from data_prep.tokenizer.describe import SPECIAL_TOKENS
from data_prep.tokenizer.train import alphabet_of, train_tokenizer

SENTENCES = ["The boats are boating.", "A boat floats; boaters float!", "Zürich is über alles."] * 3
THAI = ["กรุงเทพมหานครเป็นเมืองหลวง", "ภาษาไทยไม่มีช่องว่างระหว่างคำ", "เมืองหลวงของประเทศไทย"] * 3


def trained(kind, *, lowercase=True, size=80, moses=False, sentences=SENTENCES):
    size = size + 256 if kind == "byte-bpe" else size
    return train_tokenizer(
        sentences, kind=kind, vocabulary_size=size, lowercase=lowercase, moses=moses
    )


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "byte-bpe"])
def test_special_tokens_come_first_and_text_can_be_decoded(kind):
    tokenizer = trained(kind)
    assert [tokenizer.id_to_token(number) for number in range(5)] == list(SPECIAL_TOKENS)
    encoded = tokenizer.encode("A boat floats")
    assert (encoded.tokens[0], encoded.tokens[-1]) == ("[CLS]", "[SEP]")
    assert tokenizer.decode(encoded.ids).strip() == "a boat floats"


def test_frequent_words_are_one_token_and_no_continuing_piece_is_special():
    tokenizer = trained("wordpiece", size=120)
    assert tokenizer.encode("boat", add_special_tokens=False).tokens == ["boat"]
    specials = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    assert specials == set(SPECIAL_TOKENS)
    assert tokenizer.encode("##a", add_special_tokens=False).tokens == ["[UNK]", "[UNK]", "a"]


def test_a_cased_tokenizer_keeps_capitals_and_accents():
    text = "Zürich"
    for kind in ("wordpiece", "byte-bpe"):
        cased, uncased = trained(kind, lowercase=False), trained(kind)
        assert cased.decode(cased.encode(text).ids).strip() == "Zürich"
        assert uncased.decode(uncased.encode(text).ids).strip() == "zurich"


@pytest.mark.parametrize("moses", [False, True])
def test_a_clause_of_a_script_without_spaces_has_pieces_however_long(moses):
    tokenizer = trained("wordpiece", moses=moses, sentences=["กขคง งคขก"] * 3)
    for length in (99, 100, 101, 350):
        clause = ("กขคง" * length)[:length]
        tokens = tokenizer.encode(clause, add_special_tokens=False).tokens
        assert "".join(token.removeprefix("##") for token in tokens) == clause
        words = sum(not token.startswith("##") for token in tokens)
        assert words == -(-length // 100)
    assert trained("wordpiece").encode("a" * 101, add_special_tokens=False).tokens == ["[UNK]"]


def test_bytes_write_every_text():
    tokenizer = trained("byte-bpe", lowercase=False)
    text = "日本語 🙂 \x00 ñ"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.token_to_id("[UNK]") not in ids
    assert tokenizer.decode(ids) == f" {text}"


def test_words_that_moses_has_cut_end_at_spaces_only():
    plain, moses = trained("bpe"), trained("bpe", moses=True)
    assert plain.encode("b's", add_special_tokens=False).tokens[:2] == ["b", "[UNK]"]
    cut = moses.encode("b.s .", add_special_tokens=False).tokens
    assert cut == ["b", "##.", "##s", "."]


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_alphabet_is_the_most_frequent_characters_of_normalised_sentences(lowercase):
    sentences = [
        "İstanbul ΟΔΟΣ Σ",
        "e\u0301é Ångström ﬁ",
        "한국어 日本語\x00\u200d🙂",
        "A\u00a0b\tc",
    ]
    sentences.append("".join(chr(0x4E00 + i) * (i + 2) for i in range(100)))
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    counts = collections.Counter("".join(map(normalizer.normalize_str, sentences)))
    marks = sorted(filter(lambda mark: not mark.isspace(), counts), key=lambda m: (-counts[m], m))
    for size, limit in ((200, 64), (16_000, 1000), (1600, 100)):
        found = alphabet_of(sentences, vocabulary_size=size, lowercase=lowercase)
        assert found == sorted(marks[:limit])


def test_another_process_trains_the_same_tokenizers():
    kinds = ["wordpiece", "bpe", "byte-bpe"]
    program = (
        "import json\n"
        "from tests.data_prep.tokenizer.test_train import THAI, SENTENCES, trained\n"
        f"print(json.dumps([trained(kind, size=120, sentences=text).to_str() for kind in {kinds}"
        " for text in (SENTENCES, THAI)]))"
    )
    other = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert json.loads(other.stdout) == [
        trained(kind, size=120, sentences=text).to_str()
        for kind in kinds
        for text in (SENTENCES, THAI)
    ]
