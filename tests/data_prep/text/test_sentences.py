import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.text import sentences
from data_prep.text.sentences import split_sentences
from data_prep.tokenizer.describe import TokenizerError

SPLITTERS = ["sentencex", "spacy"]


def split(*paragraphs, splitter="sentencex", language="en"):
    return list(split_sentences(paragraphs, splitter=splitter, language=language))


@pytest.mark.parametrize("splitter", SPLITTERS)
def test_sentences_end_at_full_stops_and_paragraphs(splitter):
    found = split(
        "It rains. Does it? Yes!", "A new paragraph", "Mr. Fox sleeps.", splitter=splitter
    )
    assert found == [["It rains. ", "Does it? ", "Yes!"], ["A new paragraph"], ["Mr. Fox sleeps."]]


@pytest.mark.parametrize("splitter", SPLITTERS)
@settings(max_examples=30, deadline=None)
@given(
    paragraph=st.one_of(st.text(), st.text(st.sampled_from("aB .!?\"'()“”。…M1r\u200b"))).map(
        lambda text: " ".join(text.split())
    )
)
def test_sentences_joined_are_the_paragraph(splitter, paragraph):
    assert "".join(split(paragraph, splitter=splitter)[0]) == paragraph


@pytest.mark.parametrize("splitter", SPLITTERS)
def test_paragraphs_longer_than_spacy_accepts_lose_nothing(splitter):
    for paragraph in ("word " * 30_000, "x" * 1_200_000):
        assert "".join(split(paragraph, splitter=splitter)[0]) == paragraph


def test_text_on_which_the_library_fails_stays_whole():
    assert split("A\x85.") == [["A\x85."]]


def test_the_rules_of_a_language_are_its_own():
    text = "Er kam am 3. Mai."
    assert split(text, language="de") == split(text, language="de-at") == [[text]]
    assert split(text, language="en") == [["Er kam am 3. ", "Mai."]]


@pytest.mark.parametrize("language", ["DE", "german", "de_AT", ""])
def test_what_is_no_code_of_a_language_is_refused(language):
    with pytest.raises(TokenizerError, match=f"language='{language}' is not a code"):
        split("a", language=language)


def test_the_words_that_spacy_keeps_do_not_grow_for_ever(monkeypatch):
    paragraphs = [f"Word{number} is new. Another{number} is too." for number in range(50)]
    expected = split(*paragraphs, splitter="spacy")
    most = len(sentences._sentencizer("en").vocab.strings) + 20
    monkeypatch.setattr(sentences, "MOST_WORDS_KEPT", most)
    assert split(*paragraphs, splitter="spacy") == expected
    assert len(sentences._sentencizer("en").vocab.strings) <= most
