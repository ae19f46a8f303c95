"""Exported tokenizers make our rows, whatever their kind."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as cutters
from tokenizers.trainers import BpeTrainer, UnigramTrainer
from transformers import AutoTokenizer

from pretrain.convert.exports.hf_format import write_tokenizer
from tests.pretrain.convert.small_tokenizers import (
    SENTENCES,
    like_roberta,
    text_encoder_of,
    trained,
)

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BYTES = [f"<0x{number:02X}>" for number in range(256)]


def like_xlm(scheme="always"):
    """Return a tokenizer that marks words with an underscore of its own."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = cutters.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace()
    options = {"special_tokens": SPECIAL, "unk_token": "<unk>", "show_progress": False}
    tokenizer.train_from_iterator(SENTENCES, UnigramTrainer(vocab_size=150, **options))
    return tokenizer


def like_modernbert():
    """Return a tokenizer with entries of several spaces, as GPT-NeoX has too."""
    tokenizer = like_roberta()
    tokenizer.add_tokens([AddedToken(" " * number, normalized=True) for number in range(24, 1, -1)])
    return tokenizer


def like_llama():
    """Return a tokenizer that writes underscores before it cuts, and bytes of what is unknown."""
    learner = Tokenizer(models.BPE(unk_token="<unk>"))
    learner.pre_tokenizer = cutters.Metaspace()
    options = {"special_tokens": [*SPECIAL, "\n\n", *BYTES], "show_progress": False}
    learner.train_from_iterator(SENTENCES, BpeTrainer(vocab_size=400, **options))
    learned = json.loads(learner.to_str())["model"]
    merges = [tuple(pair) for pair in learned["merges"]]
    tokenizer = Tokenizer(
        models.BPE(learned["vocab"], merges, unk_token="<unk>", byte_fallback=True)
    )
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    tokenizer.normalizer, tokenizer.decoder = normalizers.Sequence(steps), decoders.Metaspace()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False)])  # as Gemma's, an entry too
    return tokenizer


MADE = {
    **{"roberta": like_roberta, "modernbert": like_modernbert, "llama": like_llama},
    **{"xlm": like_xlm, "xlm-first": lambda: like_xlm("first")},
}


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "byte-bpe", *MADE])
def test_texts_pairs_and_masks_are_the_rows_of_words(kind, tmp_path):
    tokenizer, words = MADE[kind]() if kind in MADE else trained(kind), "<DRUG> [DOSE]"
    tokenizer.add_special_tokens(words.split()[:1])
    tokenizer.add_tokens([AddedToken("[DOSE]", normalized=False), "of 2"])
    text_encoder = text_encoder_of(tokenizer, tmp_path)
    text_encoder.compare()  # with shards
    in_shards = text_encoder.in_shards().encode(f"Of {words}: of 2", add_special_tokens=False).ids
    assert {*map(tokenizer.token_to_id, words.split())} < {*in_shards}
    assert in_shards == text_encoder.ids(f"Of {words}: of 2")[1:-1]
    folder = tmp_path / "exported"
    folder.mkdir()
    write_tokenizer(folder, text_encoder, sequence_length=12, with_token_types=False)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.is_fast
    texts = [("The parser reads.", None), ("A list ", "of names\n"), ("", "Names"), (words, "of 2")]
    for first, second in [*texts, ("The  parser\n\nreads.", "a\tlist\r\nof names")]:
        ids = tokenizer(first, second)["input_ids"]
        assert ids == text_encoder.ids(first, second, max_length=99)
    cut = tokenizer(*SENTENCES[:2], truncation=True)["input_ids"]
    assert cut == text_encoder.ids(*SENTENCES[:2], max_length=12)
    for text in (
        *("The [MASK] reads.", "[MASK] reads a [MASK][MASK] file", "Names of [MASK] "),
        *("Names, [MASK], [MASK]s, and a [MASK].", "( [MASK] )"),
    ):
        theirs = tokenizer(text.replace("[MASK]", tokenizer.mask_token))["input_ids"]
        assert theirs == text_encoder.ids(text), text
    batch = tokenizer(["Names", "Names of files"], padding=True)
    assert batch.keys() == {"input_ids", "attention_mask"}
    assert batch["input_ids"][0][-1] == text_encoder.pad and batch["attention_mask"][0][-1] == 0
    assert tokenizer.decode(text_encoder.ids("reads names")[1:-1]).strip() == "reads names"
