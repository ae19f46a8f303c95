"""Split paragraphs into sentences without losing a character.

sentencex (Wikimedia's rules for 240 languages, in Rust) splits 110 MB of English a second on one
core; spaCy's rule-based sentencizer, the choice of the TUPE paper, 1.5 MB.

sentencex silently applies English rules to unknown languages, such as "DE" and "german", so the
form of codes is checked here.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from data_prep.settings import SentenceSplitter
from data_prep.shards.manifest import LANGUAGE
from data_prep.text.moses import moses_words
from data_prep.tokenizer.describe import TokenizerError

if TYPE_CHECKING:
    from spacy.language import Language

# spaCy refuses texts above nlp.max_length (1,000,000 characters) and keeps an object per token.
LONGEST_PARAGRAPH = 100_000

# sentencex looks for the end of each quotation to the end of the piece: of 30,000 for seconds.
QUOTATIONS, MOST_QUOTATIONS = "“«„", 2000

# spaCy stores every word it has seen, 0.35 KB each: this limit is about 70 MB, reached after 20 MB
# of English. A new pipeline takes 0.06 s; spaCy's memory zones would more than halve the speed.
MOST_WORDS_KEPT = 200_000


def check_language(language: str, *, splitter: SentenceSplitter) -> None:
    """Check the code of a language.

    Raises:
        TokenizerError: The code is malformed, or spaCy does not know it.
    """
    if not LANGUAGE.fullmatch(language):
        raise TokenizerError(
            f"language={language!r} is not a code of a language; give one in lower case, such as "
            "en, de or zh-hant"
        )
    if splitter == "spacy":
        _sentencizer(language)


def text_pieces(
    paragraphs: list[str], *, splitter: SentenceSplitter, language: str, moses: str | None
) -> list[str]:
    """Return the pieces that the tokenizer encodes: paragraphs, or sentences after Moses.

    Sentences without a space between them, as in Chinese, form one piece.
    """
    if moses is None:
        return paragraphs
    # A piece ends where white space follows a sentence; clean text has no line feeds.
    ended = (
        one + "\n" * one[-1:].isspace()
        for sentences in split_sentences(paragraphs, splitter=splitter, language=language)
        for one in (*sentences, "\n")
    )
    pieces = map(str.strip, "".join(ended).split("\n"))
    return [moses_words(piece, moses) for piece in pieces if piece]


def split_sentences(
    paragraphs: Iterable[str], *, splitter: SentenceSplitter, language: str
) -> Iterator[list[str]]:
    """Yield the sentences of each paragraph, with the white space that follows them.

    The sentences of a paragraph, concatenated, equal the paragraph.

    Raises:
        TokenizerError: The code is malformed, or spaCy does not know it.
    """
    check_language(language, splitter=splitter)
    for paragraph in paragraphs:
        pieces = list(_pieces(paragraph))
        if splitter == "sentencex":
            cut = [_cut_by_rules(piece, language) for piece in pieces]
        else:
            pipeline = _sentencizer(language)
            cut = [
                [sentence.text_with_ws for sentence in text.sents] for text in pipeline.pipe(pieces)
            ]
            if len(pipeline.vocab.strings) > MOST_WORDS_KEPT:
                _sentencizer.cache_clear()
        sentences = [sentence for piece in cut for sentence in piece]
        # Neither library guarantees it.
        yield sentences if "".join(sentences) == paragraph else [paragraph]


def _cut_by_rules(text: str, language: str) -> list[str]:
    r"""Return the sentences by sentencex, or the text itself if the library panics or would hang.

    Version 1.0.32 panics on "A\x85."; in paragraphs of this package all white space is single
    spaces.
    """
    if sum(map(text.count, QUOTATIONS)) > MOST_QUOTATIONS:
        return [text]
    try:
        import sentencex

        return list(sentencex.segment(language, text))
    except BaseException as error:  # a panic of Rust code is not an `Exception`
        if type(error).__name__ != "PanicException":
            raise
        return [text]


def _pieces(paragraph: str) -> Iterator[str]:
    """Yield the paragraph in pieces that spaCy accepts, cut after spaces if there are any."""
    while len(paragraph) > LONGEST_PARAGRAPH:
        end = paragraph.rfind(" ", 0, LONGEST_PARAGRAPH) + 1 or LONGEST_PARAGRAPH
        yield paragraph[:end]
        paragraph = paragraph[end:]
    yield paragraph


@functools.cache
def _sentencizer(language: str) -> "Language":
    import spacy

    try:
        pipeline = spacy.blank(language)
    except ImportError as error:
        raise TokenizerError(
            f"language={language!r}: spaCy does not know it; give a code such as en, de or xx "
            "(any language), or use sentences=sentencex"
        ) from error
    pipeline.add_pipe("sentencizer")
    return pipeline
