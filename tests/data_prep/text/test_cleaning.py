import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.settings import TextSettings
from data_prep.text.cleaning import clean, letter_ratio


def cleaned(*paragraphs, **settings):
    counts = Counter()
    return clean(paragraphs, TextSettings(**settings), counts), counts


def test_each_step_does_what_its_name_says_and_counts_it():
    decomposed = unicodedata.normalize("NFD", "café")
    assert cleaned(decomposed) == (["café"], {"paragraphs normalised to NFC": 1})
    assert cleaned("ﬁne ½", unicode_form="NFKC") == (
        ["fine 1⁄2"],
        {"paragraphs normalised to NFKC": 1},
    )
    removed = {"paragraphs with control characters removed": 1}
    assert cleaned("a\x00b \ufeff soft\u00adware \x7f") == (["ab software"], removed)
    assert cleaned("long enough", "1 2 3 4 5", min_letter_ratio=0.6) == (
        ["long enough"],
        {"paragraphs dropped: few letters": 1},
    )
    assert cleaned("four", "five", min_document_characters=9) == (
        [],
        {"documents dropped: too short": 1},
    )
    assert cleaned("four", "fives", min_document_characters=9)[0] == ["four", "fives"]


def test_every_step_can_be_switched_off():
    decomposed = unicodedata.normalize("NFD", "é\x00")
    off = {"unicode_form": "none", "remove_control_characters": False}
    assert cleaned(decomposed, **off) == ([decomposed], {})


def test_clean_text_is_left_as_it_is():
    text = ["Plain words.", "नमस्ते", "می‌خواهم", "👩‍🚀 goes", "日本語。"]
    assert cleaned(*text) == (text, {})


@pytest.mark.parametrize(
    ("text", "ratio"), [("abcd", 1), ("ab12", 0.5), ("a b!", 0.75), ("हिन्दी", 1), ("12", 0)]
)
def test_letters_marks_and_spaces_count_as_letters(text, ratio):
    assert letter_ratio(text) == ratio


@given(st.text(), st.sampled_from(["none", "NFC", "NFKC"]))
def test_what_comes_out_is_one_line_in_the_wanted_form_without_controls(text, form):
    words = " ".join(text.split())
    for paragraph in cleaned(words, unicode_form=form)[0]:
        assert paragraph == " ".join(paragraph.split()) != ""
        assert not any(unicodedata.category(character) == "Cc" for character in paragraph)
        assert form == "none" or unicodedata.is_normalized(form, paragraph)


def test_a_letter_and_its_accent_are_joined_over_what_is_removed_between_them():
    assert cleaned("cafe\u200b\u0301")[0] == ["café"]
