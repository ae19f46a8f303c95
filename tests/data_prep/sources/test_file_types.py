"""Files that are not text are refused by their names or their first bytes, before they are read."""

import gzip
import io
import subprocess

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from data_prep.sources.source import CorpusError, Skipped
from data_prep.sources.spec import open_source

WORDS = "Some words of a text, one line after the other.\n" * 50


def table(_):
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["a", "b"]}), stream)
    return stream.getvalue()


BINARY = {
    "noise": lambda _: np.random.default_rng(0).bytes(5000),
    "parquet": table,
    "png": lambda _: b"\x89PNG\r\n\x1a\n" + bytes(20),
    "gzip": lambda _: gzip.compress(np.random.default_rng(0).bytes(5000)),
    "utf-16 without a mark": lambda _: WORDS.encode("utf-16-le"),
}


@pytest.mark.parametrize("name", BINARY)
def test_what_is_no_text_is_refused_by_its_first_bytes(tmp_path, name):
    content = BINARY[name](tmp_path)
    for file, stored in (("a.txt", content), ("b.jsonl.gz", gzip.compress(content))):
        (tmp_path / file).write_bytes(stored)
        with pytest.raises(CorpusError, match="binary data or UTF-16, not text") as error:
            open_source(str(tmp_path / file))
        assert str(error.value).startswith(f"{tmp_path / file}: ") and "\n" not in str(error.value)


def test_text_of_a_terminal_or_with_stray_control_characters_is_text(tmp_path):
    overstruck = "".join(f"{letter}\b{letter}" for letter in "NAME")
    for text in (overstruck, "\x1b[1mbold\x1b[0m", "a\x00b", "\f"):
        (tmp_path / "a.txt").write_text(f"{text} words")
        assert len(list(open_source(str(tmp_path / "a.txt")).read())) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.PDF", "a PDF document.*pdftotext"),
        ("a.html", "an HTML page.*pandoc"),
        ("a.xml", r"an XML file.*text:.*a\.xml"),
        ("enwiki-2024-pages-articles1.xml-p1p41242.bz2", "a Wikipedia dump.*WikiExtractor.*hub:"),
        ("a.tar.gz", "a tar archive.*tar -xf"),
    ],
)
def test_a_name_that_is_no_text_is_refused_with_what_to_do(tmp_path, name, message):
    (tmp_path / name).write_bytes(WORDS.encode())
    for place in (tmp_path / name, tmp_path):
        with pytest.raises(CorpusError, match=message):
            open_source(str(place))
    assert open_source(f"text:{tmp_path / name}").files, "whoever names the kind knows"


def test_beside_text_other_files_are_left_out_and_counted(tmp_path):
    for name in ("a.txt", "b.pdf", "c.pdf", "d.md", "README"):
        (tmp_path / name).write_text(WORDS)
    source = open_source(str(tmp_path))
    assert [file.name for file in source.files] == ["a.txt"]
    assert source.left_out == "2 .pdf, 1 without suffix, 1 .md"


def test_files_that_are_no_text_can_be_skipped_with_the_damaged_ones(tmp_path):
    (tmp_path / "a.txt").write_text(WORDS)
    (tmp_path / "b.txt").write_bytes(BINARY["png"](None))
    with pytest.raises(CorpusError, match=r"b\.txt.*leave such files out: --data.damaged_files"):
        open_source(str(tmp_path))
    found = list(open_source(str(tmp_path), damaged_files="skip").read())
    assert found[1:] == [Skipped(str(tmp_path / "b.txt"), 0, "not a text file")]


def test_a_shard_folder_is_no_text_and_says_how_to_train_on_it(tmp_path):
    for name in ("manifest.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(CorpusError, match=f"a shard folder; train on it with .* {tmp_path}"):
        open_source(str(tmp_path))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_the_command_for_another_encoding_converts_the_file(tmp_path, encoding):
    file, text = tmp_path / "a b.txt", "Le café est fermé à Noël, où qu'on aille.\nПривет.\n" * 40
    file.write_text(text, encoding=encoding)
    with pytest.raises(CorpusError, match=f"is {encoding.upper()}, not UTF-8") as error:
        open_source(str(file))
    subprocess.run(str(error.value).partition("convert it: ")[2], shell=True, check=True)
    assert (tmp_path / "a b.utf8.txt").read_text(encoding="utf-8") == text


def test_a_mark_of_utf8_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_text("words", encoding="utf-8-sig")
    (raw,) = open_source(str(tmp_path / "a.txt")).read()
    assert raw.text == "words"
