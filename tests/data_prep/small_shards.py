"""Shard folders made of token ids, for tests that need no corpus."""

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from data_prep.shards.format import SequenceFormat
from data_prep.shards.manifest import Manifest, TokenizerRecord, sha256_of, write_manifest
from data_prep.shards.packing import TokenWriter, write_split

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
SEP = SPECIAL["sep"]
WORDS = ["a", "boat", "river", "slow", "##ly", "##ing", "over", "found", "."]
FIRST_WORD = len(SPECIAL)
NUM_WORDS = 100


def word_tokenizer(num_words=NUM_WORDS):
    """A WordPiece tokenizer with some English words, then artificial ones up to `num_words`."""
    names = [f"[{name.upper()}]" for name in SPECIAL]
    words = WORDS + [f"word{n}" for n in range(num_words - len(WORDS))]
    vocabulary = {text: number for number, text in enumerate(names + words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(names)
    return tokenizer


def random_documents(count, *, seed=0, longest=60):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, longest, count)
    last = FIRST_WORD + NUM_WORDS
    return [generator.integers(FIRST_WORD, last, length).tolist() for length in lengths]


def write_folder(folder, splits, *, sequence_length=16, longest=20, tokenizer=None, counted=None):
    """Write documents, {split: [[id, ...], ...]}, as a shard folder."""
    folder.mkdir(parents=True)
    tokenizer = tokenizer or word_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    record = TokenizerRecord(
        kind="wordpiece",
        sha256=sha256_of(folder / "tokenizer.json"),
        vocabulary_size=tokenizer.get_vocab_size(),
        special_tokens=SPECIAL,
    )
    form = SequenceFormat(sequence_length, record)
    manifest = Manifest(
        sequence_length=sequence_length,
        dtype=form.dtype,
        tokenizer=record,
        splits={
            name: _write_split(folder, name, documents, form, longest, counted)
            for name, documents in splits.items()
        },
        settings={},
        source="a test",
        licence="none",
    )
    write_manifest(folder, manifest)
    return folder


def _write_split(folder, name, documents, form, longest, counted):
    writer = TokenWriter(folder / "ids", form.tokenizer)
    for document in documents:
        writer.append(np.array(document))
    counts = {"documents": writer.documents, "tokens": writer.tokens, "words": counted}
    split = write_split(folder, name, writer.close(), form, longest=longest, counts=counts)
    (folder / "ids").unlink()
    return split


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def stream_of(documents):
    """Return the tokens of documents with separators between them."""
    return [token for document in documents for token in [*document, SEP]][:-1]


def sequences_of(shards, name):
    split = shards.split(name)
    return split.read(np.arange(split.num_sequences))


def tokens_of(shards, name):
    """Return the tokens of the sequences of a split, computed another way."""
    return [token for ids in sequences_of(shards, name).tolist() for token in ids[1:-1]]


def cut_at_separators(tokens):
    """Return the documents of a stream, by a plain loop."""
    documents = [[]]
    for token in tokens:
        if token == SEP:
            documents.append([])
        else:
            documents[-1].append(token)
    return documents
