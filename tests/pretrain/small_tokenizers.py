"""Tokenizers of every kind, trained in a moment."""

from data_prep.tokenizer import record_of
from data_prep.tokenizer_training import alphabet_of, character_counts, train_tokenizer
from pretrain.words import Words

SENTENCES = [
    "The parser reads a file and returns a list of names.",
    "Names of functions are words, (mostly) in lower case!",
    "Écoute: le café est là; 12 + 30 = 42.",
] * 4


def trained(kind, *, moses=None):
    counts = character_counts(SENTENCES, lowercase=True)
    return train_tokenizer(
        SENTENCES,
        kind=kind,
        vocabulary_size=400,
        lowercase=True,
        alphabet=alphabet_of(counts, vocabulary_size=400),
        moses=moses is not None,
    )


def words_of(tokenizer, folder, **options):
    tokenizer.save(str(folder / "tokenizer.json"))
    return Words(
        tokenizer, record_of(tokenizer, folder / "tokenizer.json", kind="wordpiece", **options)
    )
