"""Text to rows of token ids, in the way in which the training text became rows."""

import hashlib
import json

from tokenizers import Tokenizer

from data_prep.shards.manifest import TokenizerRecord

MASK = "[MASK]"  # in the user's text, whatever the tokenizer calls it
# Tokenizers of the same entries may lowercase, strip accents or cut at punctuation, or not.
TELLING_WORDS = ("The", "Zoë's", "naïve", "ÉTÉ", "co-op", "3.5%", "(1,200)", "東京")


class TextEncoder:
    """A tokenizer with its special tokens, and what comes before it."""

    def __init__(self, tokenizer: Tokenizer, record: TokenizerRecord) -> None:
        self.tokenizer, self.record = tokenizer, record
        self.special = record.special_tokens
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # as in the shards: text that says "[SEP]" is text

    @property
    def pad(self) -> int:
        """Return the id that fills up short rows: attention does not see it, so any will do."""
        return self.special.get("pad", 0)

    def fingerprint(self) -> str:
        """Return a hash of all entries with their ids: others would be other words."""
        entries = self.tokenizer.get_vocab(with_added_tokens=True)
        return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()

    def ids(self, text: str) -> list[int]:
        """Return [CLS], the tokens of a text in which [MASK] stands for hidden words, [SEP]."""
        ids = [self.special["cls"]]
        for number, part in enumerate(text.split(MASK)):
            if number:
                ids.append(self.special["mask"])
            # A comma right after the mask is the comma right after a word; Moses sets it apart.
            follows_space = number > 0 and (part[:1].isspace() or self.record.moses is not None)
            ids += self._tokens(part, joint=self.record.joint if follows_space else "")
        return [*ids, self.special["sep"]]

    def pair_ids(self, first: str, second: str | None = None, *, max_length: int) -> list[int]:
        """Return [CLS] first [SEP], and second [SEP] where there is one.

        What does not fit is cut off the end of the longer text, until both are equally long, as
        `longest_first` of the tokenizers library does.
        """
        cls, sep = self.special["cls"], self.special["sep"]
        first_ids = self._tokens(first)
        if second is None:
            return [cls, *first_ids[: max_length - 2], sep]
        second_ids = self._tokens(second)
        kept_first, kept_second = kept_lengths(len(first_ids), len(second_ids), max_length - 3)
        return [cls, *first_ids[:kept_first], sep, *second_ids[:kept_second], sep]

    def _tokens(self, text: str, *, joint: str = "") -> list[int]:
        text = text.strip()
        if self.record.moses is not None:
            from data_prep.text.moses import moses_words

            text = moses_words(text, self.record.moses)
        ids: list[int] = self.tokenizer.encode(
            joint + text if text else text, add_special_tokens=False
        ).ids
        return ids


def kept_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how much of two texts fits into `room` when always the longer one is shortened.

    Of an odd room the text that was longer gets one more, the second if they were equal.
    """
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (room - shorter, shorter) if first > second else (shorter, room - shorter)
