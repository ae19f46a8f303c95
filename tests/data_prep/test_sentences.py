from data_prep import sentences
from data_prep.sentences import split_sentences


def test_sentences_end_at_full_stops_and_paragraphs():
    documents = [["It rains. Does it? Yes!", "A new paragraph"], ["Mr. Fox sleeps."]]
    assert list(split_sentences(documents)) == [
        ["It rains.", "Does it?", "Yes!", "A new paragraph"],
        ["Mr. Fox sleeps."],
    ]


def test_the_number_of_processes_changes_nothing(monkeypatch):
    documents = [[f"Sentence {i}. Another one {i}."] for i in range(40)]
    alone = list(split_sentences(documents))
    monkeypatch.setattr(sentences, "DOCUMENTS_PER_BATCH", 3)
    assert list(split_sentences(documents)) == alone
    assert alone[39] == ["Sentence 39.", "Another one 39."]


def test_paragraphs_longer_than_spacy_accepts_lose_nothing(monkeypatch):
    words = "word " * 250_000
    (found,) = split_sentences([[words.strip(), "x" * 1_200_000]])
    assert " ".join(found).split()[:250_000] == words.split()
    assert "".join(found).endswith("x" * 1_200_000)
