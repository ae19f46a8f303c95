"""Exported tokenizers make our rows, whatever their kind."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from pretrain.convert.exports.hf_format import write_tokenizer
from tests.pretrain.convert.small_tokenizers import (
    SENTENCES,
    like_roberta,
    text_encoder_of,
    trained,
)


def like_xlm():
    """Return a tokenizer that marks words with an underscore of its own."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "byte-bpe", "roberta", "xlm"])
def test_texts_pairs_and_masks_are_the_rows_of_words(kind, tmp_path):
    made = {"roberta": like_roberta, "xlm": like_xlm}
    text_encoder = text_encoder_of(made[kind]() if kind in made else trained(kind), tmp_path)
    folder = tmp_path / "exported"
    folder.mkdir()
    write_tokenizer(folder, text_encoder, sequence_length=12, with_token_types=False)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.is_fast
    texts = [("The parser reads.", None), ("A list ", "of names\n"), ("", "Names")]
    for first, second in [*texts, ("The  parser\n\nreads.", "a\tlist\r\nof names")]:
        ids = tokenizer(first, second)["input_ids"]
        assert ids == text_encoder.pair_ids(first, second, max_length=99)
    cut = tokenizer(*SENTENCES[:2], truncation=True)["input_ids"]
    assert cut == text_encoder.pair_ids(*SENTENCES[:2], max_length=12)
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
