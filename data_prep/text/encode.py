"""Turn documents into token ids: sentences, optionally Moses, tokenizer."""

import functools
import itertools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data_prep.settings import SentenceSplitter
from data_prep.shards.manifest import TokenizerRecord
from data_prep.text.sentences import text_pieces
from data_prep.text.text_encoder import TextEncoder
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
    tokenizer = _tokenizer(tokenizer_file, record.model_dump_json())
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


@functools.lru_cache(maxsize=1)
def _tokenizer(file: Path, content: str) -> Tokenizer:
    """Return the tokenizer of a file and of the content of its record, which has its hash."""
    record = TokenizerRecord.model_validate_json(content)
    return TextEncoder(read_tokenizer(file), record).in_shards()
