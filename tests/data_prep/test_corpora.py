import bz2
import gzip
import lzma

import pytest

from data_prep.corpora import PYTHON_DOCS, CorpusError, first_words, open_corpus

TEXT = "\ufeffOne  paragraph.\nAnother\tone.\n\n\n  \nA second document, déjà.\n"
DOCUMENTS = [["One paragraph.", "Another one."], ["A second document, déjà."]]


def documents(path):
    return list(open_corpus(str(path)).documents)


@pytest.mark.parametrize(
    ("suffix", "opener"), [("", open), (".xz", lzma.open), (".gz", gzip.open), (".bz2", bz2.open)]
)
def test_a_text_file_is_read_whatever_its_compression(tmp_path, suffix, opener):
    file = tmp_path / f"text.txt{suffix}"
    with opener(file, "wb") as stream:
        stream.write(TEXT.encode())
    assert documents(file) == DOCUMENTS


def test_a_folder_is_read_recursively_in_the_order_of_its_names(tmp_path):
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "2.txt").write_text("Second.")
    (tmp_path / "a.txt").write_text("First.")
    (tmp_path / "ignored.md").write_text("Ignored.")
    assert documents(tmp_path) == [["First."], ["Second."]]


def test_a_file_is_read_no_further_than_needed(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"Good.\n\n" * 100_000 + b"\xff")
    assert next(open_corpus(str(file)).documents) == ["Good."]


def test_the_first_words_end_with_the_paragraph_that_reaches_them():
    assert list(first_words(DOCUMENTS, 3)) == [DOCUMENTS[0]]
    assert list(first_words(DOCUMENTS, 2)) == [["One paragraph."]]
    assert list(first_words(DOCUMENTS, 5)) == list(first_words(DOCUMENTS, None)) == DOCUMENTS


def test_the_built_in_corpus_says_where_it_comes_from():
    corpus = open_corpus(PYTHON_DOCS)
    assert "Python" in corpus.source
    assert "installed packages" in corpus.licence


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match=r"missing\.txt: no such file or folder"):
        open_corpus(str(tmp_path / "missing.txt"))


def test_a_folder_without_text_files_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match=r"holds no \*\.txt file"):
        open_corpus(str(tmp_path))


def test_invalid_utf8_is_an_error_with_file_and_line(tmp_path):
    file = tmp_path / "latin.txt"
    file.write_bytes("Good.\nBad: café.\n".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"latin\.txt, line 2: not valid UTF-8"):
        documents(file)


@pytest.mark.parametrize("module", [lzma, gzip, bz2])
def test_a_compressed_file_cut_short_is_an_error(tmp_path, module):
    file = tmp_path / f"text.{ {lzma: 'xz', gzip: 'gz', bz2: 'bz2'}[module] }"
    file.write_bytes(module.compress(TEXT.encode() * 10)[:-20])
    with pytest.raises(CorpusError, match="cannot be read after line"):
        documents(file)


def test_a_file_that_is_not_compressed_as_its_name_says_is_an_error(tmp_path):
    file = tmp_path / "text.xz"
    file.write_text("Plain text.")
    with pytest.raises(CorpusError, match="cannot be read after line 0"):
        documents(file)
