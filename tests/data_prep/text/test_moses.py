import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesPunctNormalizer

from data_prep.text.moses import moses_words


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


@functools.cache
def normalizer(language):
    return MosesPunctNormalizer(lang=language)


@pytest.mark.parametrize("language", ["en", "xx"])
@settings(max_examples=8, deadline=None)
@given(
    sentence=st.one_of(
        st.text(st.characters(exclude_categories=["Cc", "Cs"])),
        st.text(st.sampled_from("ab1 .,'\"`-()[]&<>%$:;!?…’“«»\u00a0€\u0301\u200d#|@")),
    )
)
def test_words_joined_are_the_sentence_with_its_punctuation_normalised(language, sentence):
    normalised = normalizer(language).normalize(sentence)
    words = moses_words(sentence, language)
    assert "".join(words.split()) == "".join(normalised.split())
    assert words == " ".join(words.split())
