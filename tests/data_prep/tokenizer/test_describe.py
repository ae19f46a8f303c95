import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertTokenizerFast, RobertaTokenizerFast, XLMRobertaTokenizerFast

from data_prep.shards.manifest import sha256_of
from data_prep.text.text_encoder import TextEncoder
from data_prep.tokenizer import load as tokenizer_loading
from data_prep.tokenizer.describe import (
    TokenizerError,
    joint_of,
    record_of,
    special_tokens_of,
    word_starts,
)
from data_prep.tokenizer.load import load_tokenizer, special_names_beside
from tests.data_prep.small_shards import random_documents, write_folder
from tests.data_prep.tokenizer.test_train import trained

TEXTS = ["The boat's afloat!", "Zürich, 日本 [MASK]", "unknownness, boats  boating", "a\tb"]
BERT_ENTRIES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "boat", "##s", "##ing", "a"]
BERT_ENTRIES += ["'", "s", ",", "!", "zurich", "b", "##float"]


def saved(tokenizer, folder):
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.fixture
def vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(BERT_ENTRIES) + "\n", encoding="utf-8")
    return tmp_path / "vocab.txt"


def numbered(entries):
    return {entry: number for number, entry in enumerate(entries)}


def bert():
    return BertTokenizerFast(vocab=numbered(BERT_ENTRIES))


def roberta():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    return RobertaTokenizerFast(
        vocab=numbered([*names, *letters, "oa", "boa", "<mask>"]), merges=[("o", "a"), ("b", "oa")]
    )


def xlm_roberta():
    names = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    letters = [(letter, -9.0) for letter in "abcdefghiklnostuwz.'!"]
    pieces = [("▁", -3.0), ("▁boat", -2.0), ("boat", -5.0), ("ing", -3.0), ("s", -3.1)]
    return XLMRobertaTokenizerFast(vocab=[*names, *pieces, *letters[:-1], ("<mask>", 0.0)])


@pytest.mark.parametrize(
    "options",
    [
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "tokenize_chinese_chars": False},
    ],
)
def test_a_vocabulary_file_gives_the_ids_of_hugging_faces_bert(vocabulary, options):
    entries = [*BERT_ENTRIES, "müller", "muller", "Müller", "東京", "東", "京"]
    vocabulary.write_text("\n".join(entries) + "\n")
    (vocabulary.parent / "tokenizer_config.json").write_text(json.dumps(options))
    theirs = BertTokenizerFast(vocab=numbered(entries), **options)
    ours = load_tokenizer(str(vocabulary))
    for text in (*TEXTS, "Müller", "müller", "東京"):
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
    record = record_of(ours, vocabulary, kind="loaded")
    assert record.special_tokens == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert record.vocabulary_size == len(entries)
    assert record.sha256 == sha256_of(vocabulary)
    vocabulary.write_bytes(vocabulary.read_bytes().replace(b"\n", b"\r\n"))
    assert load_tokenizer(str(vocabulary)).get_vocab() == ours.get_vocab()
    (vocabulary.parent / "tokenizer_config.json").unlink()
    vocabulary.write_text("\n".join(entry for entry in entries if entry != "Müller"))
    assert load_tokenizer(str(vocabulary)).encode("MÜLLER").tokens[1:-1] == ["müller"]


@pytest.mark.parametrize(("family", "joint"), [(bert, ""), (roberta, " "), (xlm_roberta, "")])
def test_a_folder_of_hugging_face_is_loaded_with_its_special_tokens(tmp_path, family, joint):
    theirs = family()
    theirs.save_pretrained(tmp_path)
    ours = load_tokenizer(str(tmp_path))
    for text in TEXTS:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
    record = record_of(
        ours, tmp_path / "tokenizer.json", kind="loaded", names=special_names_beside(str(tmp_path))
    )
    assert record.special_tokens == {
        role: getattr(theirs, f"{role}_token_id") for role in ("pad", "unk", "cls", "sep", "mask")
    }
    assert record.vocabulary_size == len(theirs)
    assert record.joint == joint
    encoder, pair = TextEncoder(ours, record), ("the boats", "a boat")  # RoBERTa: </s></s> between
    assert encoder.ids(*pair) == theirs(*pair)["input_ids"] == encoder.exported().encode(*pair).ids
    starts = word_starts(ours)
    words = theirs(" the boats", add_special_tokens=False)["input_ids"]
    assert starts[words].sum() == 2
    assert starts[list(record.special_tokens.values())].all()


def test_special_tokens_are_what_the_configuration_calls_them(tmp_path, vocabulary):
    entries = [entry.replace("[MASK]", "<hidden>") for entry in BERT_ENTRIES]
    vocabulary.write_text("\n".join(entries))
    tokenizer = load_tokenizer(str(vocabulary))
    (tmp_path / "special_tokens_map.json").write_text(
        '{"mask_token": {"content": "<hidden>"}, "cls_token": "[CLS]", "bos_token": "", '
        '"eos_token": "[SEP]"}'
    )
    names = special_names_beside(str(vocabulary))
    assert names == {"mask": "<hidden>", "cls": "[CLS]", "sep": "[SEP]"}
    # `bert_tokenizer` adds the usual names that are missing; the configuration wins.
    assert special_tokens_of(tokenizer, names)["mask"] == 4


def test_a_tokenizer_without_a_needed_special_token_is_refused():
    gpt = Tokenizer(models.BPE(vocab={"a": 0, "<|endoftext|>": 1}, merges=[]))
    gpt.pre_tokenizer = pre_tokenizers.ByteLevel()
    with pytest.raises(TokenizerError, match=r"no pad .*, no cls .*, no sep .*, no mask token"):
        special_tokens_of(gpt, {})
    names = {role: "<|endoftext|>" for role in ("pad", "cls", "sep", "mask")}
    with pytest.raises(TokenizerError, match=r"<\|endoftext\|> both as pad and as cls"):
        special_tokens_of(gpt, names)


def test_truncation_and_padding_in_the_file_are_switched_off(tmp_path):
    tokenizer = trained("wordpiece")
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    loaded = load_tokenizer(str(saved(tokenizer, tmp_path)))
    assert len(loaded.encode("a boat floats a boat floats").ids) == 8


def test_dropout_of_merges_is_switched_off_with_a_note(tmp_path, capsys):
    tokenizer = trained("byte-bpe")
    expected = tokenizer.encode("boats are boating").ids
    tokenizer.model.dropout = 0.9
    loaded = load_tokenizer(str(saved(tokenizer, tmp_path)))
    assert all(loaded.encode("boats are boating").ids == expected for _ in range(20))
    assert "tokenizer.json: dropout=0.9 of BPE is switched off" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "configuration", "what"),
    [
        ("vocab.txt", {"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        ("vocab.txt", {"tokenizer_class": "RoFormerTokenizerFast"}, "RoFormerTokenizer"),
        ("tokenizer.json", {"tokenizer_class": "RoFormerTokenizerFast"}, "RoFormerTokenizer"),
        ("vocab.txt", {"do_basic_tokenize": False}, "do_basic_tokenize"),
        ("vocab.txt", {"never_split": ["boat"]}, "never_split"),
    ],
)
def test_a_tokenizer_that_its_files_do_not_describe_is_refused(
    tmp_path, vocabulary, name, configuration, what
):
    if name == "tokenizer.json":
        saved(bert().backend_tokenizer, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(configuration))
    with pytest.raises(TokenizerError, match=f"{name}: {what} in tokenizer_config.json cuts"):
        load_tokenizer(str(tmp_path))


def test_a_tokenizer_that_looks_across_sentences_is_refused():
    # Without a pre-tokenizer the space is a token of its own, before or after.
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, " ": 1, " a": 2, "a ": 3}, merges=[("a", " ")]))
    tokenizer.add_tokens(["one two", "The end. Another one"])
    characters = [(chr(one), -9.0) for one in range(33, 127)]
    across = Tokenizer(models.Unigram([("▁", -9.0), *characters, ("▁of▁the", -1.0)], 0))
    across.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    for one in (tokenizer, across):
        with pytest.raises(TokenizerError, match="encodes a sentence differently alone"):
            joint_of(one)


def test_word_starts_tell_the_words_of_a_text():
    text = "the boats are boating ; zurich alles"
    for tokenizer in (trained("wordpiece"), trained("bpe"), trained("byte-bpe")):
        starts = word_starts(tokenizer)
        assert starts.shape == (tokenizer.get_vocab_size(),)
        assert starts[:5].all()
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert starts[ids].sum() == len(text.split())
        assert not starts.all()
    ids = tokenizer.encode("日本 für Ärzte", add_special_tokens=False).ids  # as bytes
    assert starts[ids].sum() == 5  # a space too
    assert tokenizer.add_tokens(["drug"]) == 1 and word_starts(tokenizer)[-1]
    vocabulary = {"▁a": 0, "a": 1, "▁": 2, "日": 3}
    metaspace = Tokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "a")]))
    metaspace.pre_tokenizer = pre_tokenizers.Metaspace()
    assert word_starts(metaspace).tolist() == [True, False, True, True]


def test_tokens_that_do_not_tell_where_a_word_starts_are_refused():
    suffixed = Tokenizer(
        models.BPE(vocab={"a": 0, "a</w>": 1}, merges=[], end_of_word_suffix="</w>")
    )
    with pytest.raises(TokenizerError, match="do not mark where a word starts"):
        word_starts(suffixed)


def test_the_tokenizer_of_shards_keeps_the_unusual_names_of_its_special_tokens(tmp_path):
    file = write_folder(tmp_path / "shards", {"train": random_documents(20)}) / "tokenizer.json"
    file.write_text(file.read_text().replace("[CLS]", "[BOS]"))
    for place in (file.parent, file):
        names = special_names_beside(str(place))
        assert names["cls"] == "[BOS]" and names["sep"] == "[SEP]"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{}", "not a tokenizer.json"),
        ("vocab.txt", "a\nb\n", "not a vocabulary of BERT's kind"),
        ("vocab.txt", "[UNK]\n[CLS]\n[CLS]\n", "lists every entry once"),
        ("absent.json", None, "no tokenizer there; give a tokenizer.json"),
        ("", None, "no tokenizer there; give a tokenizer.json"),
    ],
)
def test_what_is_no_tokenizer_is_refused_with_its_name(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=message) as error:
        load_tokenizer(str(tmp_path / name))
    assert str(tmp_path / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_name_that_needs_the_network_fails_fast_and_clearly(monkeypatch):
    def refused(*_):
        raise OSError("Name or service not known")

    monkeypatch.setattr(tokenizer_loading, "connect_to_hub", refused)
    for name in ("nobody/knows-this", "nobody/knows-this-v1.5", "not a name"):
        with pytest.raises(TokenizerError, match=f"{name}: no such file, and the Hugging Face Hub"):
            load_tokenizer(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model["vocab"].update(far=1 << 31), "has ids up to 2,147,483,648, more"),
        (lambda model: model.update(unk_token="[NONE]"), "unk_token is '.NONE.', which has no id"),
    ],
)
def test_a_tokenizer_that_would_fill_the_memory_or_fail_at_a_word_is_refused(
    tmp_path, change, message
):
    content = json.loads(bert().backend_tokenizer.to_str())
    change(content["model"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(str(tmp_path))
