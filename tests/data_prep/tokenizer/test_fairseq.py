"""Ids of a fairseq model, against its two steps in a loop: fastBPE, then the dictionary."""

import json
import random
from collections import Counter

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from data_prep.tokenizer.fairseq import fairseq_tokenizer

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>"]


def text():
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdeé", k=generator.randint(1, 7))) for _ in range(150)]
    return [" ".join(generator.choices(words, k=12)) for _ in range(80)]


def learned_codes(lines):
    learner = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=150, end_of_word_suffix="</w>", show_progress=False, special_tokens=["x"]
    )
    learner.train_from_iterator(lines, trainer)
    return [tuple(merge) for merge in json.loads(learner.to_str())["model"]["merges"]]


def pieces(word, ranks):
    """Merge the best pair, everywhere, until there is none; then mark what does not end a word."""
    parts = [*word[:-1], word[-1] + "</w>"]
    while known := [pair for pair in zip(parts, parts[1:], strict=False) if pair in ranks]:
        best, merged = min(known, key=ranks.get), []
        while parts:
            size = 2 if tuple(parts[:2]) == best else 1
            merged.append("".join(parts[:size]))
            parts = parts[size:]
        parts = merged
    return [part.removesuffix("</w>") if part.endswith("</w>") else f"{part}@@" for part in parts]


@pytest.fixture
def model(tmp_path):
    """A dictionary of the 60 most frequent pieces, so that others are unknown."""
    lines = text()
    codes = learned_codes(lines)
    ranks = {merge: rank for rank, merge in enumerate(codes)}
    counts = Counter(one for line in lines for word in line.split() for one in pieces(word, ranks))
    entries = [entry for entry, _ in counts.most_common(60)]
    (tmp_path / "dict.txt").write_text("".join(f"{entry} 1\n" for entry in entries))
    (tmp_path / "codes").write_text("".join(f"{left} {right} 1\n" for left, right in codes))
    return tmp_path, ranks, [*SPECIAL, *entries, "<mask>"]


def test_ids_are_those_of_fastbpe_and_the_dictionary(model):
    folder, ranks, symbols = model
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    tokenizer, num_unknown = fairseq_tokenizer(
        folder / "dict.txt", folder / "codes", num_rows=len(symbols)
    )
    seen = Counter()
    for line in [*text(), "ABBA zebra éé"]:
        expected = [ids.get(p, 3) for word in line.lower().split() for p in pieces(word, ranks)]
        found = tokenizer.encode(line, add_special_tokens=False).ids
        assert [3 if number >= len(symbols) else number for number in found] == expected
        seen.update(found)
    assert num_unknown > 0
    assert any(number >= len(symbols) for number in seen) and seen[3] > 0
