"""Encode text as rows of token ids, as the training text was encoded."""

import functools
import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, normalizers, processors

from data_prep.shards.manifest import TokenizerRecord
from data_prep.text.sentences import text_pieces
from data_prep.tokenizer.cleaning import CLEANING, SINGLE_SPACES, clean_text, cleans, own_normalizer
from data_prep.tokenizer.describe import TokenizerError, ids_of, record_of
from data_prep.tokenizer.load import load_tokenizer, special_names_beside

if TYPE_CHECKING:
    from torch import Tensor

MASK = "[MASK]"  # in the user's text, whatever the name in the tokenizer
# Texts that differ between tokenizers of one vocabulary that lowercase, strip accents or split
# punctuation, and those that do not.
PROBE_TEXTS = ("The", "Zoë's", "naïve", "ÉTÉ", "co-op", "3.5%", "(1,200)", "東京")
SENTENCES = (
    ("The committee met on Tuesday, and nobody could say why.", None),
    ("A list of names is returned in the order of the files.", "Is the order kept?"),
    (f"In winter the lake is covered with {MASK}, which carries a horse and a cart.", None),
    ("Yes.", "They asked whether 3.5 % of 1,200 is 42; it is, and the clerk wrote it down."),
)
# Composed or not, white space of all kinds, and what nobody sees.
HOSTILE = (
    *(
        "cafe\u0301",
        "\ufb01nal \uff11",
        "a\x0cb\x1cc\x85d",
        "a  b\n\n\tc  ",
        "[UNK] x [SEP]",
        "Straße İ",
    ),
    *("soft\u00adware \u200eb\ufeff", "می\u200cخواهم 👩\u200d🚀", "ភាសា\u200bខ្មែរ", "हिन्दी がぎ"),
)
RowOf = Callable[[str, str | None], list[int]]  # of a text or a pair
NO_EXPORT = "no model of this tokenizer could be exported: choose another one"
FEW, MANY = 200, 10_000  # random texts: at each start, and where a model is exported


class TextEncoder:
    """A tokenizer with its special tokens, after Moses where the training text had it."""

    def __init__(self, tokenizer: Tokenizer, record: TokenizerRecord) -> None:
        self.tokenizer, self.record = tokenizer, record
        self.special = record.special_tokens
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._mask = str(tokenizer.id_to_token(self.special["mask"]))

    @functools.cached_property
    def _encoding(self) -> Tokenizer:  # takes seconds for a large vocabulary; not all encode
        return self.exported()

    @property
    def pad(self) -> int:
        """Return the id of padding; attention ignores it, so 0 serves where there is none."""
        return self.special.get("pad", 0)

    def fingerprint(self) -> str:
        """Return a hash of all entries with their ids."""
        entries = self.tokenizer.get_vocab(with_added_tokens=True)
        return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()

    def ids(
        self, first: str, second: str | None = None, *, max_length: int = sys.maxsize
    ) -> list[int]:
        """Return [CLS] first [SEP], and second [SEP] where there is one.

        Rows that are too long lose tokens at the end of the longer text until both are equally
        long, as with `longest_first` of the tokenizers library. The names of special tokens in a
        text are these tokens, as in transformers, and so is [MASK]; in shards they are text.
        """
        pair = [self._tokens(text) for text in (first, second) if text is not None]
        return self._row(*pair, max_length=max_length)

    @functools.cached_property
    def between(self) -> list[int]:
        """Return what stands between the texts of a pair: [SEP], with RoBERTa's twice."""
        return [self.special["sep"]] * max(1, self.tokenizer.num_special_tokens_to_add(True) - 2)

    def pieces(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text without [CLS] and [SEP], and the characters of each.

        It does not go through Moses, which keeps no characters, as in transformers.
        """
        found = self._encoding.encode(text, add_special_tokens=False)
        return found.ids, found.offsets

    def padded(self, rows: Sequence[list[int]]) -> "tuple[Tensor, Tensor]":
        """Return ids_BS, padded to the longest row, and lengths_B."""
        import torch  # builds need none

        lengths = [len(row) for row in rows]
        longest = max(lengths)
        ids = [[*row, *[self.pad] * (longest - len(row))] for row in rows]
        return torch.tensor(ids), torch.tensor(lengths, dtype=torch.int32)

    def exported(self) -> Tokenizer:
        """Return the tokenizer of this object for any program; Moses is no part of it.

        It makes the ids of shards, with one exception: white space in front of a whole text, which
        they do not have, is one space where the joint is a space.
        """
        content = json.loads(self.tokenizer.to_str())
        # White space after a text and around an added token is dropped, and the joint put after it.
        # This matters where white space is a token.
        has_joint = self.record.joint != ""
        for token in content["added_tokens"]:
            if token["id"] in self.special.values() or not token["normalized"]:
                token |= {"lstrip": True, "rstrip": not has_joint}
        tokenizer = Tokenizer.from_str(json.dumps(content))
        # As transformers does with those that it knows by name.
        tokenizer.add_special_tokens([*map(tokenizer.id_to_token, self.special.values())])
        drops = ids_of(tokenizer, "a ") != ids_of(tokenizer, "a")
        own = own_normalizer(self.tokenizer)
        steps: list[Any] = [*CLEANING] if cleans(self.tokenizer) else [SINGLE_SPACES]
        steps += [normalizers.Strip(left=not has_joint)] * drops
        steps += [own] if own is not None else []
        tokenizer.normalizer = normalizers.Sequence(steps)
        cls, sep = (self.tokenizer.id_to_token(self.special[role]) for role in ("cls", "sep"))
        template = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {f'{sep} ' * len(self.between)}$B:1 {sep}:1",
            special_tokens=[(cls, self.special["cls"]), (sep, self.special["sep"])],
        )
        # The characters of a token are those of its word, without the space before it.
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template])
        return tokenizer

    def in_shards(self) -> Tokenizer:
        """Return it for clean text, which takes half of the time; "[SEP]" in a text is text."""
        content = json.loads(self._encoding.to_str()) | {"normalizer": None}
        for token in content["added_tokens"]:
            token["special"] = token["id"] in self.special.values()
        tokenizer = Tokenizer.from_str(json.dumps(content))
        tokenizer.encode_special_tokens = True
        if (own := own_normalizer(self.tokenizer)) is not None:
            tokenizer.normalizer = own
        return tokenizer

    def compare(
        self, theirs: RowOf | None = None, *, num_random: int = FEW, fix: str = NO_EXPORT
    ) -> None:
        """Compare rows with those of another program, or of shards; Moses is known to differ.

        0 random texts: nor forms of a text that only our tokenizers treat alike.

        Raises:
            TokenizerError: they differ; names a text.
        """
        shards = self.in_shards()
        clean = clean_text if cleans(self.tokenizer) else str

        def in_shards(*texts: str | None) -> list[int]:
            parts = [" ".join(clean(text).split()) for text in texts if text is not None]
            return self._row(*(ids_of(shards, text) for text in parts))

        hostile = (*HOSTILE, *_random_texts(num_random)) if num_random else ()
        texts = [*((text, None) for text in (*PROBE_TEXTS, *hostile)), *SENTENCES]
        if theirs is None:  # where names of special tokens are text
            texts = [pair for pair in texts if "[" not in pair[0]]
        for first, second in texts if self.record.moses is None else ():
            first = f"a{first}" if self.record.joint else first  # white space before it: known
            found = (theirs or in_shards)(first.replace(MASK, self._mask), second)
            ours = self.ids(first, second)
            if found != ours:
                where = "in transformers" if theirs else "in shards"
                raise TokenizerError(f"{first!r} becomes {ours} here and {found} {where}; {fix}")

    def _row(
        self, first: list[int], second: list[int] | None = None, *, max_length: int = sys.maxsize
    ) -> list[int]:
        cls, sep = self.special["cls"], self.special["sep"]
        if second is None:
            return [cls, *first[: max_length - 2], sep]
        of_first, of_second = len(first), len(second)
        room = max(0, max_length - 2 - len(self.between))
        if of_first + of_second > room:
            # Where both are cut and the room is odd, the longer one keeps one more, or the second.
            shorter = min(of_first, of_second, room // 2)
            lengths = shorter, room - shorter
            of_first, of_second = lengths[::-1] if of_first > of_second else lengths
        return [cls, *first[:of_first], *self.between, *second[:of_second], sep]

    def _tokens(self, text: str) -> list[int]:
        if (language := self.record.moses) is not None:
            parts = [
                text_pieces([part], splitter="sentencex", language=language, moses=language)
                for part in " ".join(clean_text(text).split()).split(MASK)
            ]
            text = f" {MASK} ".join(map(" ".join, parts)).strip()
        return ids_of(self._encoding, text.replace(MASK, self._mask))


def text_encoder_at(place: str, *, moses: str | None = None) -> TextEncoder:
    """Return the text encoder of an external tokenizer, after Moses where a language is given.

    Raises:
        TokenizerError: it cannot be loaded, lacks a special token, or cannot join sentences.
    """
    tokenizer, names = load_tokenizer(place), special_names_beside(place)
    record = record_of(tokenizer, None, kind="loaded", moses=moses, names=names)
    return TextEncoder(tokenizer, record)


def _random_texts(number: int) -> Iterator[str]:
    """Yield short texts of letters, marks, white space and controls of all scripts."""
    generator = random.Random(0)
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))
    often = "aB \t\x0c\x1c.,\u0301\u0308\u200b\u200c\u200d\ufeff中กាក가"
    for _ in range(number):
        kinds = generator.choices((often, every), k=generator.randint(1, 8))
        yield "".join(map(generator.choice, kinds))
