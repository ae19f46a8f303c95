"""Train a WordPiece or BPE tokenizer; the same text gives the same file, byte for byte."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from data_prep.tokenizer.describe import CLS, CONTINUATION, SEP, SPECIAL_TOKENS, UNK, TokenizerError

TokenizerKind = Literal["wordpiece", "bpe", "byte-bpe"]

LARGEST_ALPHABET = 1000  # BERT's; rarer characters become [UNK]
# Runs of scripts that separate clauses by spaces, not words. WordPiece makes [UNK] of more than 100
# characters, also of other scripts, where that is hardly a word.
CLAUSES = r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]{1,100}"


def train_tokenizer(
    sentences: Iterable[str],
    *,
    kind: TokenizerKind,
    vocabulary_size: int,
    lowercase: bool,
    moses: bool = False,
) -> Tokenizer:
    """Train a tokenizer, special tokens as ids 0 to 4.

    "wordpiece" and "bpe" have BERT's normaliser and pre-tokenizer, "byte-bpe" RoBERTa's, which
    encodes every text. `vocabulary_size` is an upper bound: a small corpus holds fewer pieces.

    Args:
        sentences: Training text, iterated over twice.
        kind: The algorithm.
        vocabulary_size: Number of tokens, special ones included.
        lowercase: Whether to lowercase and to strip accents.
        moses: Whether Moses has separated the words: then they end at spaces only.
    """
    if kind == "byte-bpe":
        return _finished(_trained_on_bytes(sentences, vocabulary_size, lowercase=lowercase))
    ends = pre_tokenizers.WhitespaceSplit() if moses else pre_tokenizers.BertPreTokenizer()
    words = pre_tokenizers.Sequence([ends, pre_tokenizers.Split(Regex(CLAUSES), "isolated")])
    alphabet = alphabet_of(sentences, vocabulary_size=vocabulary_size, lowercase=lowercase)
    # The trainer numbers the continuing characters ("##a") in the order of a hash map that differs
    # between processes, and breaks ties by number. Passing them as special tokens fixes the order;
    # only the real special tokens are declared special below. Others cannot occur inside a word:
    # BERT separates punctuation.
    inside = [one for one in alphabet if len(words.pre_tokenize_str(one * 2)) == 1]
    continuing = [CONTINUATION + character for character in inside]
    trainer = trainers.BpeTrainer(  # tokenizers' WordPieceTrainer wraps it
        vocab_size=vocabulary_size,
        special_tokens=[*SPECIAL_TOKENS, *continuing],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    learner = _untrained(
        models.BPE(continuing_subword_prefix=CONTINUATION), words, lowercase=lowercase
    )
    learner.train_from_iterator(sentences, trainer)
    learned = json.loads(learner.to_str())["model"]
    model: models.Model = models.WordPiece(learned["vocab"], unk_token=UNK)
    if kind == "bpe":
        merges = [(left, right) for left, right in learned["merges"]]
        model = models.BPE(
            learned["vocab"], merges, unk_token=UNK, continuing_subword_prefix=CONTINUATION
        )
    return bert_tokenizer(model, words, lowercase=lowercase)


def check_vocabulary_size(vocabulary_size: int, *, kind: TokenizerKind) -> None:
    """Check the size of a vocabulary that is to be learned.

    Raises:
        TokenizerError: The vocabulary is too small for the 256 bytes.
    """
    smallest = len(SPECIAL_TOKENS) + len(pre_tokenizers.ByteLevel.alphabet())
    if kind == "byte-bpe" and vocabulary_size < smallest:
        raise TokenizerError(
            f"vocabulary_size={vocabulary_size} is too small for byte-bpe: special tokens and "
            f"bytes alone are {smallest}; raise it"
        )


def alphabet_of(sentences: Iterable[str], *, vocabulary_size: int, lowercase: bool) -> list[str]:
    """Return the most frequent characters after BERT's normalisation, sorted, no white space.

    At most 1000, and at most a sixteenth of the vocabulary (or 64, if that is more): each may take
    two tokens ("a" and "##a"), and a text with rare scripts would leave no entries for words.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    counts: Counter[str] = Counter()
    # The normalisation of a character does not depend on its neighbours.
    for character, count in Counter(itertools.chain.from_iterable(sentences)).items():
        for mark in normalizer.normalize_str(character):
            counts[mark] += count * (not mark.isspace())
    limit = min(LARGEST_ALPHABET, max(64, vocabulary_size // 16))
    by_frequency = sorted(+counts, key=lambda character: (-counts[character], character))
    return sorted(by_frequency[:limit])


def bert_tokenizer(
    model: models.Model,
    words: pre_tokenizers.PreTokenizer | None = None,
    *,
    lowercase: bool,
) -> Tokenizer:
    """Return a tokenizer of BERT's kind for a model whose vocabulary holds the special tokens.

    Args:
        model: WordPiece, or BPE with "##" before pieces that continue a word.
        words: The pre-tokenizer that separates words; default: BERT's.
        lowercase: Whether to lowercase and to strip accents.
    """
    tokenizer = _untrained(model, words or pre_tokenizers.BertPreTokenizer(), lowercase=lowercase)
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)
    return _finished(tokenizer)


def _finished(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in (CLS, SEP)],
    )
    return tokenizer


def _trained_on_bytes(
    sentences: Iterable[str], vocabulary_size: int, *, lowercase: bool
) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE())
    if lowercase:
        # Accents can be stripped from decomposed characters only; the rest is composed again.
        steps = (
            normalizers.NFD(),
            normalizers.Lowercase(),
            normalizers.StripAccents(),
            normalizers.NFC(),
        )
        tokenizer.normalizer = normalizers.Sequence(list(steps))
    # With a space before the first word too, a word has the same tokens at every place.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    return tokenizer


def _untrained(
    model: models.Model, words: pre_tokenizers.PreTokenizer, *, lowercase: bool
) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = words
    return tokenizer
