"""Train a WordPiece or BPE tokenizer; the same text gives the same file, byte for byte."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

TokenizerKind = Literal["wordpiece", "bpe"]

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
LARGEST_ALPHABET = 1000  # BERT's; rarer characters become [UNK]


def train_tokenizer(
    sentences: Iterable[str],
    *,
    kind: TokenizerKind,
    vocabulary_size: int,
    lowercase: bool,
    alphabet: list[str],
) -> Tokenizer:
    """Train a tokenizer with BERT's normaliser and pre-tokenizer, special tokens as ids 0 to 4.

    `vocabulary_size` is an upper bound: a small corpus holds fewer pieces.

    Args:
        sentences: Training text.
        kind: How pieces are chosen and words are cut.
        vocabulary_size: Number of tokens, special ones included.
        lowercase: Whether to lowercase and to strip accents.
        alphabet: Characters that may be tokens of their own, see `alphabet_of`.
    """
    learned = _learned_pieces(sentences, vocabulary_size, alphabet, lowercase=lowercase)
    model: models.Model = models.WordPiece(learned["vocab"], unk_token=UNK)
    if kind == "bpe":
        merges = [(left, right) for left, right in learned["merges"]]
        model = models.BPE(
            learned["vocab"], merges, unk_token=UNK, continuing_subword_prefix=CONTINUATION
        )
    tokenizer = _untrained(model, lowercase=lowercase)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(name, SPECIAL_TOKENS.index(name)) for name in (CLS, SEP)],
    )
    return tokenizer


def alphabet_of(sentences: Iterable[str], *, vocabulary_size: int, lowercase: bool) -> list[str]:
    """Return the most frequent characters of the text, sorted.

    At most 1000, and at most a sixteenth of the vocabulary where that leaves 64: each may take two
    tokens ("a" and "##a"), and a text with rare scripts would otherwise leave no room for words.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(normalizer.normalize_str(sentence))
    limit = min(LARGEST_ALPHABET, max(64, vocabulary_size // 16))
    visible = (character for character in counts if not character.isspace())
    by_frequency = sorted(visible, key=lambda character: (-counts[character], character))
    return sorted(by_frequency[:limit])


def _learned_pieces(
    sentences: Iterable[str], vocabulary_size: int, alphabet: list[str], *, lowercase: bool
) -> dict[str, Any]:
    """Return the vocabulary and the merges, as tokenizers writes a BPE model.

    The trainer numbers the continuing characters ("##a") in the order of a hash map that differs
    from process to process, and breaks ties by number. Handing them over as special tokens fixes
    the order; `train_tokenizer` then declares only the real special tokens special.
    """
    continuing = [CONTINUATION + character for character in alphabet if _may_continue(character)]
    trainer = trainers.BpeTrainer(  # tokenizers' WordPieceTrainer is this one inside
        vocab_size=vocabulary_size,
        special_tokens=[*SPECIAL_TOKENS, *continuing],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    learner = _untrained(models.BPE(continuing_subword_prefix=CONTINUATION), lowercase=lowercase)
    learner.train_from_iterator(sentences, trainer)
    learned: dict[str, Any] = json.loads(learner.to_str())["model"]
    return learned


def _untrained(model: models.Model, *, lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _may_continue(character: str) -> bool:
    """Say whether the character can stand inside a word: punctuation is always cut off."""
    return len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{character}a")) == 1
