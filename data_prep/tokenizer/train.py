"""Train a WordPiece or BPE tokenizer; the same text gives the same file, byte for byte."""

import json
import string
from collections import Counter
from collections.abc import Callable, Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from data_prep.shards.manifest import TokenizerKind
from data_prep.tokenizer.cleaning import CLEANING, STRIPPING
from data_prep.tokenizer.describe import CLS, CONTINUATION, SEP, SPECIAL_TOKENS, UNK

LARGEST_ALPHABET = 1000  # BERT's; it grows where more than this share of a text is outside of it
MOST_OUTSIDE = 0.0005
# Above this share of words with accents they are letters: English has 0.2 %.
MOST_ACCENTED = 0.01
QUOTES = "«»„“”‚‘’…–—¿¡"
# Runs of scripts that separate clauses by spaces, not words. WordPiece makes [UNK] of more than 100
# characters, also of other scripts, where that is hardly a word.
CLAUSES = r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]{1,100}"


def accents_of(words: Counter[str], *, lowercase: bool) -> tuple[float, float]:
    """Return which share of the words has accents of Latin, Greek or Cyrillic letters.

    And which share of the 10,000 most frequent ones becomes equal to another one without them:
    rarer ones are names and misspellings, also in a text that uses no accents.
    """
    stripping, bare = normalizers.Sequence([*STRIPPING]), Counter[str]()
    for word, count in words.items():
        bare[(word.lower() if lowercase else word).strip(string.punctuation + QUOTES)] += count
    stripped = {w: w if w.isascii() else str(stripping.normalize_str(w)) for w in bare}
    accented = sum(count for word, count in bare.items() if stripped[word] != word)
    frequent = Counter(stripped[word] for word, _ in bare.most_common(10_000))
    merged = sum(size for size in frequent.values() if size > 1)
    return accented / max(1, bare.total()), merged / max(1, frequent.total())


def train_tokenizer(
    sentences: Iterable[str],
    words: Counter[str],
    *,
    kind: TokenizerKind,
    vocabulary_size: int,
    lowercase: bool,
    strip_accents: bool,
    moses: bool = False,
) -> Tokenizer:
    """Train a tokenizer, special tokens as ids 0 to 4.

    "wordpiece" and "bpe" have BERT's pre-tokenizer, "byte-bpe" RoBERTa's, which encodes every text;
    all clean text first. `vocabulary_size` is an upper bound: a small corpus holds fewer pieces.
    `words` says how often each occurs, where words end at white space; those that Moses has
    separated end at spaces only.
    """
    stripping = STRIPPING if strip_accents else ()
    if kind == "byte-bpe":
        lowering = [normalizers.Lowercase()] if lowercase else []
        return _trained_on_bytes(sentences, vocabulary_size, [*CLEANING, *stripping, *lowering])
    ends = pre_tokenizers.WhitespaceSplit() if moses else pre_tokenizers.BertPreTokenizer()
    cut = pre_tokenizers.Sequence([ends, pre_tokenizers.Split(Regex(CLAUSES), "isolated")])
    # BERT's puts spaces around Chinese characters. It would remove joiners as control characters.
    berts = normalizers.BertNormalizer(clean_text=False, strip_accents=False, lowercase=lowercase)
    normalizer = normalizers.Sequence([*CLEANING, *stripping, berts])

    def joined(one: str) -> bool:  # others stand alone: Chinese characters, and punctuation
        return len(cut.pre_tokenize_str(normalizer.normalize_str(one * 2))) == 1

    alphabet = alphabet_of(words, normalizer, joined, vocabulary_size=vocabulary_size)
    # The trainer numbers the continuing characters ("##a") in the order of a hash map that differs
    # between processes, and breaks ties by number. Passing them as special tokens fixes the order;
    # only the real special tokens are declared special below.
    continuing = [CONTINUATION + character for character in alphabet if joined(character)]
    trainer = trainers.BpeTrainer(  # tokenizers' WordPieceTrainer wraps it
        vocab_size=vocabulary_size,
        special_tokens=[*SPECIAL_TOKENS, *continuing],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    learner = Tokenizer(models.BPE(continuing_subword_prefix=CONTINUATION))
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizers.Sequence([cut, without_long(101)])
    learner.train_from_iterator(sentences, trainer)
    learned = json.loads(learner.to_str())["model"]
    model: models.Model = models.WordPiece(learned["vocab"], unk_token=UNK)
    if kind == "bpe":
        merges = [(left, right) for left, right in learned["merges"]]
        model = models.BPE(
            learned["vocab"], merges, unk_token=UNK, continuing_subword_prefix=CONTINUATION
        )
    return bert_tokenizer(model, normalizer, cut)


def without_long(size: int) -> pre_tokenizers.PreTokenizer:
    """Leave out words of so many characters: WordPiece knows none, and learning would not end."""
    return pre_tokenizers.Split(Regex(f".{{{size},}}"), "removed")


def alphabet_of(
    words: Counter[str],
    normalizer: normalizers.Normalizer,
    is_joined: Callable[[str], bool],
    *,
    vocabulary_size: int,
) -> list[str]:
    """Return the most frequent characters of normalised words, sorted.

    At most 1000, and at most a sixteenth of the vocabulary (or 64, if that is more). More where
    many would be unknown: half of the entries by characters that are joined to words and take two
    each ("a" and "##a"), all of them by others, such as Chinese ones.
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in "".join(normalizer.normalize_str(word).split()):
            counts[character] += count
    by_frequency = sorted(counts, key=lambda character: (-counts[character], character))
    first = min(LARGEST_ALPHABET, max(64, vocabulary_size // 16))
    found = by_frequency[:first]
    num_entries = len(SPECIAL_TOKENS) + sum(1 + is_joined(one) for one in found)
    num_outside = sum(counts[character] for character in by_frequency[first:])
    for character in by_frequency[first:]:
        if num_outside <= MOST_OUTSIDE * counts.total():
            break
        joins = is_joined(character)
        if num_entries + 1 + joins <= (vocabulary_size // 2 if joins else vocabulary_size):
            found.append(character)
            num_entries += 1 + joins
            num_outside -= counts[character]
    return sorted(found)


def bert_tokenizer(
    model: models.Model,
    normalizer: normalizers.Normalizer,
    words: pre_tokenizers.PreTokenizer | None = None,
) -> Tokenizer:
    """Return a tokenizer of BERT's kind for a model whose vocabulary holds the special tokens.

    The model is WordPiece, or BPE with "##" before pieces that continue a word. BERT's
    pre-tokenizer separates words unless another one is given.
    """
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = words or pre_tokenizers.BertPreTokenizer()
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
    sentences: Iterable[str], vocabulary_size: int, steps: list[normalizers.Normalizer]
) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(steps)
    # With a space before the first word too, a word has the same tokens at every place.
    level = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([level, without_long(1000)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.pre_tokenizer = level
    return _finished(tokenizer)
