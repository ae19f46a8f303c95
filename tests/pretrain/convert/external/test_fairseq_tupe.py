"""Checkpoints of the TUPE authors' code, against their model written out."""

import sys
import types

import pytest
import torch

from data_prep.tokenizer.describe import TokenizerError
from pretrain.config.errors import ConfigError
from pretrain.convert.pretrained import load_pretrained, restored_network
from tests.pretrain.convert.external.authors_model import (
    ENCODER,
    HEAD,
    POSITIONS,
    checkpoint,
    logits,
)

# "the" and "that" are cut with their codes into the, th@@ a@@ t; "ha" is not in the dictionary.
ENTRIES = ["the", "th@@", "t", "a@@", "a", "t@@", "h@@", "e", "madeupword0000"]
CODES = ["t h 9", "th e</w> 8", "h a</w> 2"]
ROWS = 7 + len(ENTRIES) + 1
UNKNOWN_PIECES = ["ha</w>"]


def write(folder, state, entries=ENTRIES, codes=CODES):
    torch.save(state, folder / "tupe_r.pt")
    (folder / "dict.txt").write_text("".join(f"{entry} 1\n" for entry in entries))
    (folder / "bpe-code").write_text("".join(f"{code}\n" for code in codes))
    return folder / "tupe_r.pt"


def our_logits(pretrained, row):
    with torch.no_grad():
        return restored_network(pretrained).logits(row[None], torch.arange(len(row)))


def row_of_ids(length=POSITIONS):
    ids = torch.randint(4, ROWS, (length,), generator=torch.Generator().manual_seed(1))
    ids[0], ids[-1] = 0, 2  # <s> and </s>
    return ids


@pytest.mark.parametrize(
    ("relative", "pre", "length"), [(True, True, POSITIONS), (True, False, 7), (False, False, 20)]
)
def test_logits_are_those_of_the_authors_model(tmp_path, relative, pre, length):
    state = checkpoint(ROWS, relative=relative, pre=pre)
    pretrained = load_pretrained(write(tmp_path, state))
    assert pretrained.model.positions == ("tupe-r" if relative else "tupe-a")
    assert pretrained.model.norm == ("pre" if pre else "post")
    found, expected = our_logits(pretrained, row_of_ids(length)), logits(state, row_of_ids(length))
    known = [number for number in range(ROWS) if number != 3]  # <unk> shares its probability
    # fp32 sums of two layers, logits of size 10
    torch.testing.assert_close(found[:, known], expected[:, known], rtol=1e-5, atol=1e-4)


def test_every_token_keeps_its_probability_and_unknown_pieces_share_that_of_unk(tmp_path):
    state = checkpoint(ROWS)
    pretrained = load_pretrained(write(tmp_path, state))
    assert pretrained.model.vocabulary_size == ROWS + len(UNKNOWN_PIECES)
    found = our_logits(pretrained, row_of_ids()).softmax(-1)
    expected = logits(state, row_of_ids()).softmax(-1)
    unknown = [3, *range(ROWS, ROWS + len(UNKNOWN_PIECES))]
    torch.testing.assert_close(found[:, unknown].sum(-1), expected[:, 3], rtol=1e-4, atol=1e-6)
    found[:, 3] = expected[:, 3]
    torch.testing.assert_close(found[:, :ROWS], expected, rtol=1e-4, atol=1e-6)


def test_text_gets_the_ids_of_fastbpe_and_the_dictionary(tmp_path):
    text_encoder = load_pretrained(write(tmp_path, checkpoint(ROWS))).text_encoder
    ids = {entry: 7 + number for number, entry in enumerate(ENTRIES)}
    assert text_encoder.special == {"cls": 0, "pad": 1, "sep": 2, "unk": 3, "mask": ROWS - 1}
    expected = [ids["a"], ROWS - 1, ids["th@@"], ids["a@@"], ids["t"], ids["t@@"], 3, ROWS]
    assert text_encoder.ids("A [MASK] that tx ha") == [0, *expected, 2]


def test_the_four_special_tokens_of_plain_fairseq_are_recognised(tmp_path):
    entries = [*ENTRIES, "madeupword0001", "madeupword0002"]
    state = checkpoint(4 + len(entries) + 1)
    text_encoder = load_pretrained(write(tmp_path, state, entries)).text_encoder
    assert text_encoder.ids("the") == [0, 4, 2]


def test_a_tokenizer_json_beside_the_checkpoint_takes_the_place_of_both_files(tmp_path):
    file = write(tmp_path, checkpoint(ROWS), codes=CODES[:2])  # no unknown pieces
    text_encoder = load_pretrained(file).text_encoder
    text_encoder.tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "dict.txt").unlink()
    assert load_pretrained(file).text_encoder.ids("the that") == text_encoder.ids("the that")


def test_a_checkpoint_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="typo.pt holds no pre-trained model; give .* a .pt file"):
        load_pretrained("typo.pt")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: s["model"].pop(f"{ENCODER}pos_ln.bias"), "needs .*projected.norm.bias"),
        (lambda s: s["model"].pop(f"{ENCODER}pos.weight"), "no table .*pos.weight; it is no check"),
        (
            lambda s: s["model"].update({f"{ENCODER}layers.0.adapter.weight": torch.zeros(2)}),
            "has no place for decoder.sentence_encoder.layers.0.adapter.weight",
        ),
        (
            lambda s: s["model"].update({f"{HEAD}weight": torch.zeros(ROWS, 24)}),
            "lm_head.weight differs from .*embed_tokens.weight",
        ),
        (lambda s: setattr(s["args"], "activation_fn", "relu"), "activation_fn='relu'"),
        (lambda s: delattr(s["args"], "encoder_attention_heads"), "num_heads='not in args'"),
        (lambda s: s.pop("args"), "which has the entries 'args' and 'model'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path, change, complaint):
    state = checkpoint(ROWS)
    change(state)
    with pytest.raises(ConfigError, match=complaint):
        load_pretrained(write(tmp_path, state))


def test_a_checkpoint_without_its_words_is_refused_with_what_to_do(tmp_path):
    file = write(tmp_path, checkpoint(ROWS))
    (tmp_path / "dict.txt").unlink()
    with pytest.raises(ConfigError, match="there is no .*dict.txt, .* ids .* mean nothing; put"):
        load_pretrained(file)


def test_the_statistics_that_fairseq_stores_as_objects_are_no_obstacle(tmp_path, monkeypatch):
    module = types.ModuleType("fairseq.meters")
    module.AverageMeter = type("AverageMeter", (), {"__module__": "fairseq.meters"})
    monkeypatch.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
    monkeypatch.setitem(sys.modules, "fairseq.meters", module)
    state = checkpoint(ROWS)
    state["extra_state"] = {"train_meters": {"train_loss": module.AverageMeter()}}
    state["model"]["classification_heads.glue.dense.weight"] = torch.zeros(2, 2)  # left out
    file = write(tmp_path, state)
    monkeypatch.undo()
    load_pretrained(file)


def test_words_of_another_model_are_refused(tmp_path):
    with pytest.raises(TokenizerError, match="has 8 entries, .* make 13 or 16; the model has 17"):
        load_pretrained(write(tmp_path, checkpoint(ROWS), ENTRIES[:-1]))
