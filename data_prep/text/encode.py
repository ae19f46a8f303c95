"""Turn documents into token ids: sentences, optionally Moses, tokenizer."""

import functools
import itertools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data_prep.settings import SentenceSplitter
from data_prep.shards.manifest import TokenizerRecord
from data_prep.text.moses import moses_words
from data_prep.text.sentences import split_sentences
from data_prep.tokenizer.cleaning import for_clean_text
from data_prep.tokenizer.describe import read_tokenizer

# A batch takes 20 times the memory of its text, and a piece may be a long paragraph.
PIECES_PER_BATCH = 1024


def encode_documents(
    documents: list[list[str]],
    tokenizer_file: Path,
    record: TokenizerRecord,
    *,
    splitter: SentenceSplitter,
    language: str,
) -> list[NDArray[np.uint32]]:
    """Return the ids of each document, a list of paragraphs, without special tokens.

    They equal those of the paragraphs joined by spaces, whatever the sentence boundaries.
    """
    texts: list[str] = []
    num_texts = []
    for document in documents:
        pieces = text_pieces(document, splitter=splitter, language=language, moses=record.moses)
        texts += pieces[:1] + [record.joint + piece for piece in pieces[1:]]
        num_texts.append(len(pieces))
    tokenizer = _tokenizer(tokenizer_file, record.sha256)
    ids = (
        np.array(encoding.ids, np.uint32)
        for first in range(0, len(texts), PIECES_PER_BATCH)
        for encoding in tokenizer.encode_batch_fast(
            texts[first : first + PIECES_PER_BATCH], add_special_tokens=False
        )
    )
    return [
        np.concatenate([np.empty(0, np.uint32), *itertools.islice(ids, number)])
        for number in num_texts
    ]


def text_pieces(
    paragraphs: list[str], *, splitter: SentenceSplitter, language: str, moses: str | None
) -> list[str]:
    """Return the pieces that the tokenizer encodes: paragraphs, or sentences after Moses.

    Sentences without a space between them, as in Chinese, form one piece.
    """
    if moses is None:
        return paragraphs
    pieces: list[str] = []
    for sentences in split_sentences(paragraphs, splitter=splitter, language=language):
        piece = ""
        for sentence in sentences:
            piece += sentence
            if sentence[-1:].isspace():
                pieces.append(piece.strip())
                piece = ""
        pieces.append(piece.strip())
    return [moses_words(piece, moses) for piece in pieces if piece]


@functools.lru_cache(maxsize=1)
def _tokenizer(file: Path, sha256: str) -> Tokenizer:
    """Return the tokenizer of a file; `sha256` distinguishes versions of the file in the cache."""
    return for_clean_text(read_tokenizer(file))
