import unicodedata
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.text.cleaning import clean


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
