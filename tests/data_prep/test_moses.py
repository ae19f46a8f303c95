import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.moses import moses_words


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Don't stop, Dr. Who!", "Don 't stop , Dr. Who !"),
        ("“Quoted” – for $3.50…", '" Quoted " - for $ 3.50 ...'),
        ("R&D costs <5%>", "R & D costs < 5 % >"),
    ],
)
def test_words_are_cut_and_punctuation_is_normalised_without_escapes(sentence, words):
    assert moses_words(sentence, "en") == words


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(categories=["L", "Nd"], include_characters=" .,'-")))
def test_no_letter_or_digit_is_lost(sentence):
    def letters(text):
        return [c for c in text if unicodedata.category(c)[0] in "LN"]

    assert letters(moses_words(sentence, "en")) == letters(sentence)
