"""Shards are built once, and what does not fit them any more is said."""

import pytest
from tokenizers import Tokenizer

from pretrain.__main__ import main
from pretrain.config.errors import ConfigError


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "texts" / "text.txt"
    file.parent.mkdir()
    sentence = "The boats are moved one after the other, never two of them at once, says {}. "
    file.write_text("\n\n".join(sentence.format(n) * 5 for n in range(80)) + "\n")
    (file.parent / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    return file


def prepare(corpus, *options):
    words = ["--model.vocabulary_size", "256", "--data.valid_fraction", "0.1"]
    main(["prepare", "tiny_cpu", "--corpus", str(corpus.parent), *words, *options])


def test_shards_are_built_once_and_a_changed_text_or_large_vocabulary_is_said(corpus, capsys):
    prepare(corpus, "--data.damaged_files", "skip")
    (folder,) = (corpus.parents[1] / "data").iterdir()
    built = (folder / "manifest.json").stat().st_mtime_ns
    prepare(corpus)  # what was skipped is no changed text
    assert (folder / "manifest.json").stat().st_mtime_ns == built
    assert "note:" not in capsys.readouterr().out
    entries = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    for size in (2 * entries, 2 * entries + 1):
        words = ["--model.vocabulary_size", str(size), "--data.shards", str(folder)]
        main(["prepare", "tiny_cpu", *words])
        note = f"has {entries} entries, but model.vocabulary_size={size}"
        assert (note in capsys.readouterr().out) == (size > 2 * entries)
    corpus.write_text(corpus.read_text() + "\nOne more line of text is added here.\n")
    prepare(corpus)
    assert "note: the text has changed since" in capsys.readouterr().out


def test_shards_that_are_named_but_missing_are_not_built(corpus):
    with pytest.raises(ConfigError, match="there are no shards in typo; .*tupelo data build --to"):
        main(["prepare", "tiny_cpu", "--data.shards", "typo"])
    assert not (corpus.parent / "typo").exists()
