"""Split documents into sentences with spaCy's rule-based sentencizer."""

import functools
import itertools
from collections.abc import Iterable, Iterator

import spacy
from spacy.language import Language

from data_prep.corpora import Document
from data_prep.parallel import batches, map_in_order

# spaCy refuses texts above nlp.max_length (1,000,000 characters) and holds a whole text as objects.
LONGEST_PARAGRAPH = 100_000
DOCUMENTS_PER_BATCH = 128


def split_sentences(documents: Iterable[Document]) -> Iterator[list[str]]:
    """Yield the sentences of each document, in order, computed in worker processes."""
    yield from itertools.chain.from_iterable(
        map_in_order(_split_batch, batches(documents, DOCUMENTS_PER_BATCH))
    )


def _split_batch(documents: list[Document]) -> list[list[str]]:
    sentences: list[list[str]] = [[] for _ in documents]
    pieces = (
        (piece, number)
        for number, document in enumerate(documents)
        for paragraph in document
        for piece in _pieces(paragraph)
    )
    for text, number in _sentencizer().pipe(pieces, as_tuples=True):
        sentences[number] += [sentence.text for sentence in text.sents]
    return sentences


def _pieces(paragraph: str) -> Iterator[str]:
    """Yield the paragraph in pieces that spaCy accepts, cut at spaces where there are any."""
    while len(paragraph) > LONGEST_PARAGRAPH:
        end = paragraph.rfind(" ", 0, LONGEST_PARAGRAPH) + 1 or LONGEST_PARAGRAPH
        yield paragraph[:end].rstrip()
        paragraph = paragraph[end:]
    yield paragraph


@functools.cache
def _sentencizer() -> Language:
    language = spacy.blank("en")
    language.add_pipe("sentencizer")
    return language
