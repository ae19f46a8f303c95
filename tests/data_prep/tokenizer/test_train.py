import json
import subprocess
import sys
import unicodedata
from collections import Counter

import pytest
from tokenizers.normalizers import NFC

from data_prep.tokenizer.describe import SPECIAL_TOKENS
from data_prep.tokenizer.train import accents_of, alphabet_of, train_tokenizer

SENTENCES = ["The boats are boating.", "A boat floats; boaters float!", "Zürich is über alles."] * 3
THAI = ["กรุงเทพมหานครเป็นเมืองหลวง", "ภาษาไทยไม่มีช่องว่างระหว่างคำ", "เมืองหลวงของประเทศไทย"] * 3


def trained(kind, *, lowercase=True, size=80, moses=False, sentences=SENTENCES):
    size = size + 256 if kind == "byte-bpe" else size
    options = {"lowercase": lowercase, "strip_accents": lowercase, "moses": moses}
    return train_tokenizer(
        sentences, Counter(" ".join(sentences).split()), kind=kind, vocabulary_size=size, **options
    )


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "byte-bpe"])
def test_special_tokens_come_first_and_text_can_be_decoded(kind):
    tokenizer = trained(kind)
    assert trained(kind, sentences=[*SENTENCES, "boat" * 500]).to_str() == tokenizer.to_str()
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
    text = "日本語 🙂 ñ"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.token_to_id("[UNK]") not in ids
    assert tokenizer.decode(ids) == f" {text}"


def test_words_that_moses_has_cut_end_at_spaces_only():
    plain, moses = trained("bpe"), trained("bpe", moses=True)
    assert plain.encode("b's", add_special_tokens=False).tokens[:2] == ["b", "[UNK]"]
    cut = moses.encode("b.s .", add_special_tokens=False).tokens
    assert cut == ["b", "##.", "##s", "."]


def letters(first, count):
    return [chr(first + number) for number in range(count)]


@pytest.mark.parametrize(("size", "first"), [(200, 64), (1600, 100), (32_000, 1000)])
def test_the_alphabet_is_berts_where_it_leaves_hardly_a_character_out(size, first):
    """Of characters whose numbers fall by 1 % each, and as many more that occur once."""
    counts = [int(1e6 * 0.8**number) + 1 for number in range(first)] + [1] * first
    words = Counter(dict(zip(letters(0x4E00, 2 * first), counts, strict=True)))
    found = alphabet_of(words, NFC(), lambda _: True, vocabulary_size=size)
    assert found == letters(0x4E00, first)


def test_the_alphabet_grows_until_half_a_thousandth_is_outside_or_entries_are_taken():
    """Of 3000 characters that are equally frequent."""
    words = Counter({letter: 1 for letter in letters(0x4E00, 3000)})
    for size, is_joined, expected in (
        (8192, False, 2999),  # 1 of 3000 is less than 0.05 %
        (1000, False, 995),  # an entry each, five are special
        (8192, True, 2045),  # 5 + 2 * 2045 is at most half of 8192
    ):
        found = alphabet_of(words, NFC(), lambda _, joined=is_joined: joined, vocabulary_size=size)
        assert found == letters(0x4E00, expected), (size, is_joined)


def test_characters_that_stand_alone_continue_no_word():
    tokenizer = trained("wordpiece", size=300, sentences=["我们在北京学习中文。 日本 ab ab"] * 3)
    entries = [one for one in tokenizer.get_vocab() if one.startswith("##")]
    assert sorted(entries) == ["##a", "##b"]
    assert tokenizer.encode("北京", add_special_tokens=False).tokens == ["北", "京"]


def test_accents_are_counted_on_words_and_where_words_differ_in_them_alone():
    words = Counter({"schön": 3, "Schon": 1, "schon,": 1, "gut": 5, "नमस्ते": 90})
    # 3 of 100 words have one. Of schön, schon, gut, नमस्ते two become equal; Indic vowels stay.
    assert accents_of(words, lowercase=True) == (0.03, 0.5)


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
def test_stripping_leaves_marks_of_other_scripts(kind):
    texts = ["Việt ÉTÉ ёй Ήχος", "हिन्दी", "กำลัง", "がぎ", "한국어", "שָׁלוֹם"]
    normalizer = trained(kind, lowercase=True).normalizer
    found = ["".join(normalizer.normalize_str(text).split()) for text in texts]
    last = unicodedata.normalize("NFC", texts[5])
    assert found == ["vieteteеиηχος", "हिन्दी", "กำลัง", "がぎ", "한국어", last]


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
