import unicodedata
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from data_prep.tokenizer.cleaning import SINGLE_SPACES, add_cleaning, clean, clean_text, cleans


def cleaned(*paragraphs):
    counts = Counter()
    return clean(paragraphs, counts), counts


def test_each_step_does_what_its_name_says_and_counts_it():
    decomposed = unicodedata.normalize("NFD", "café")
    assert cleaned(decomposed) == (["café"], {"paragraphs normalised to NFC": 1})
    removed = {"paragraphs with control characters removed": 1}
    assert cleaned("a\x00b \ufeff soft\u00adware \x7f") == (["ab software"], removed)


def test_clean_text_is_left_as_it_is():
    text = ["Plain words.", "ﬁne ½", "नमस्ते", "می‌خواهم", "👩‍🚀 goes", "日本語。"]
    assert cleaned(*text) == (text, {})


@settings(max_examples=30)
@given(st.text())
def test_what_comes_out_is_one_line_in_the_normal_form_without_controls(text):
    for paragraph in cleaned(" ".join(text.split()))[0]:
        assert paragraph == " ".join(paragraph.split()) != ""
        assert not any(unicodedata.category(character) == "Cc" for character in paragraph)
        assert unicodedata.is_normalized("NFC", paragraph)


def test_a_letter_and_its_accent_are_joined_over_what_is_removed_between_them():
    assert cleaned("cafe\u200b\u0301")[0] == ["café"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cafe\u0301 A\u030a", "café Å"),
        ("a\x0cb\x0bc\x1cd\x1fe\x85f\u3000g  h\t", "a b c d e f g h"),
        ("soft\u00adware \ufeff \u200eb\u200bc", "software bc"),
        ("ភាសា\u200bខ្មែរ", "ភាសា ខ្មែរ"),
        ("می\u200cخواهم 👩\u200d🚀 ﬁ", "می\u200cخواهم 👩\u200d🚀 ﬁ"),
    ],
)
def test_a_tokenizer_cleans_text_as_a_build_does(text, expected):
    assert clean_text(text) == cleaned(" ".join(text.split()))[0][0] == expected
    tokenizer = Tokenizer(models.WordLevel({}))
    assert not cleans(tokenizer)
    add_cleaning(tokenizer)
    assert cleans(tokenizer)
    assert tokenizer.normalizer.normalize_str(text).strip() == expected


def test_white_space_is_what_python_calls_so():
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    found = [one for one in every if SINGLE_SPACES.normalize_str(f"a{one} b") == "a b"]
    assert found == list(filter(str.isspace, every))
