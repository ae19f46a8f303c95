import pytest
from tokenizers import Tokenizer

from pretrain.__main__ import main
from pretrain.config.errors import ConfigError


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "text.txt"
    sentence = "The boats are moved one after the other, never two of them at once, says {}. "
    file.write_text("\n\n".join(sentence.format(n) * 5 for n in range(80)) + "\n")
    return file


def prepare(corpus, *options):
    words = ["--model.vocabulary_size", "256", "--data.valid_fraction", "0.1"]
    main(["prepare", "tiny_cpu", "--corpus", str(corpus), *words, *options])


def test_shards_are_built_once_and_used_again(corpus, capsys):
    prepare(corpus)
    (folder,) = (corpus.parent / "data").iterdir()
    built = (folder / "manifest.json").stat().st_mtime_ns
    prepare(corpus)
    assert (folder / "manifest.json").stat().st_mtime_ns == built
    assert "note:" not in capsys.readouterr().out


def test_text_that_changed_since_its_shards_were_built_is_said(corpus, capsys):
    prepare(corpus)
    corpus.write_text(corpus.read_text() + "\nOne more line of text is added here.\n")
    prepare(corpus)
    assert "note: the text has changed since" in capsys.readouterr().out


def test_a_file_that_was_skipped_is_no_changed_text(corpus, capsys):
    texts = corpus.parent / "texts"
    texts.mkdir()
    corpus.rename(texts / "text.txt")
    (texts / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    skip = ("--data.damaged_files", "skip")
    prepare(texts, *skip)
    for options in (skip, ()):
        prepare(texts, *options)
    assert "note:" not in capsys.readouterr().out


@pytest.mark.parametrize(("more", "noted"), [(0, False), (1, True)])
def test_a_vocabulary_of_which_the_tokenizer_uses_less_than_half_is_said(
    corpus, capsys, more, noted
):
    prepare(corpus)
    (folder,) = (corpus.parent / "data").iterdir()
    entries = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    rows = 2 * entries + more
    words = ["--model.vocabulary_size", str(rows), "--data.shards", str(folder)]
    main(["prepare", "tiny_cpu", *words])
    note = f"has {entries} entries, but model.vocabulary_size={rows}"
    assert (note in capsys.readouterr().out) == noted


def test_shards_that_are_named_but_missing_are_not_built(corpus):
    with pytest.raises(ConfigError, match="there are no shards in typo; .*tupelo data build --to"):
        main(["prepare", "tiny_cpu", "--data.shards", "typo"])
    assert not (corpus.parent / "typo").exists()
