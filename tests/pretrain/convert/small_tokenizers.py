"""Tokenizers of every kind, trained in a moment."""

from collections import Counter

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from data_prep.text.text_encoder import TextEncoder
from data_prep.tokenizer.describe import read_tokenizer, record_of
from data_prep.tokenizer.train import train_tokenizer

SENTENCES = [
    "The parser reads a file and returns a list of names.",
    "Names of functions are words, (mostly) in lower case!",
    "Écoute: le café est là; 12 + 30 = 42.",
] * 4


def trained(kind, *, moses=None):
    return train_tokenizer(
        SENTENCES,
        Counter(" ".join(SENTENCES).split()),
        kind=kind,
        vocabulary_size=400,
        lowercase=True,
        strip_accents=True,
        moses=moses is not None,
    )


def like_roberta():
    """Return a byte-level tokenizer to which a space before a word matters, with its own names."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def text_encoder_of(tokenizer, folder, **options):
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    loaded = read_tokenizer(file)
    return TextEncoder(loaded, record_of(loaded, file, kind="wordpiece", **options))
