"""Files that are not text are refused by their first bytes or their names, before they are read."""

import gzip
import io
import sqlite3
import subprocess
import zipfile

import h5py
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from data_prep.sources.source import CorpusError, Skipped
from data_prep.sources.spec import open_source

WORDS = "Some words of a text, one line after the other.\n" * 50


def archive(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as content:
        for name in names:
            content.writestr(name, WORDS)
    return stream.getvalue()


def database(folder):
    file = folder / "database"
    with sqlite3.connect(file) as connection:
        connection.execute("create table texts (text)")
    connection.close()
    return file.read_bytes()


def hdf5():
    stream = io.BytesIO()
    with h5py.File(stream, "w") as content:
        content["text"] = np.zeros(3)
    return stream.getvalue()


def table():
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["a", "b"]}), stream)
    return stream.getvalue()


FILES = {
    "dump": (
        b"<mediawiki>\n",
        "a Wikipedia dump.*WikiExtractor.*hub:wikimedia/wikipedia",
    ),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document.*pdftotext .*a.txt"),
    "zip": (archive("a.txt"), "a ZIP archive.*unzip"),
    "utf-16": ("où\n".encode("utf-16"), "is UTF-16, not UTF-8; convert it: iconv"),
    "gzip": (gzip.compress(WORDS.encode()), r"compressed \(gz\).*mv .*a\.txt .*a\.txt\.gz"),
    "hdf5": (hdf5(), "an HDF5 file"),
    "noise": (np.random.default_rng(0).bytes(5000), "binary data, not text"),
    "sqlite": (None, "binary data, not text"),
    "parquet": (table(), "binary data, not text"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(20), "binary data, not text"),
}


@pytest.mark.parametrize("kind", ["text", "jsonl", "wikiextractor", None])
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_text_is_refused_by_its_first_bytes_with_what_to_do(tmp_path, name, kind):
    content, message = FILES[name]
    file = tmp_path / "a.txt"
    file.write_bytes(content or database(tmp_path))
    with pytest.raises(CorpusError, match=message) as error:
        open_source(f"{kind}:{file}" if kind else str(file))
    assert str(error.value).startswith(f"{file}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["pdf", "zip", "noise"])
def test_a_compressed_file_is_refused_by_what_it_holds(tmp_path, name):
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(FILES[name][0]))
    with pytest.raises(CorpusError, match=FILES[name][1].partition(".*")[0]):
        list(open_source(str(file)).raw_documents())


def test_text_that_begins_like_a_mark_is_text(tmp_path):
    for word in (
        "MZ and",
        "BMW",
        "RIFF RAFF",
        "PAR1 course",
        "GGUF",
        "BZh9 flats",
        "PK fire",
        "II*",
    ):
        file = tmp_path / "a.txt"
        file.write_text(f"{word} {WORDS}")
        assert len(list(open_source(str(file)).raw_documents())) == 1


def test_text_of_a_terminal_or_with_stray_control_characters_is_text(tmp_path):
    overstruck = "".join(f"{letter}\b{letter}" for letter in "NAME")
    for text in (overstruck, "\x1b[1mbold\x1b[0m", "a\x00b", "\f"):
        (tmp_path / "a.txt").write_text(f"{text} words")
        assert len(list(open_source(str(tmp_path / "a.txt")).raw_documents())) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.PDF", "a PDF document.*pdftotext"),
        ("a.docx", "a Word document.*pandoc"),
        ("a.epub", "an EPUB book.*pandoc"),
        ("a.html", "an HTML page.*pandoc"),
        ("a.xml", r"an XML file.*text:.*a\.xml"),
        ("enwiki-2024-pages-articles1.xml-p1p41242.bz2", "a Wikipedia dump.*WikiExtractor.*hub:"),
        ("a.zip", "a ZIP archive.*unzip"),
        ("a.tar", "a tar archive.*tar -xf"),
        ("a.tar.gz", "a tar archive.*tar -xf"),
    ],
)
def test_a_name_that_is_no_text_is_refused_with_what_to_do(tmp_path, name, message):
    is_readable = name.endswith("ml")
    (tmp_path / name).write_bytes(WORDS.encode() if is_readable else b"\x01\x90\xff" * 9)
    for place in (tmp_path / name, tmp_path):
        with pytest.raises(CorpusError, match=message.partition(".*text:")[0]):
            open_source(str(place))
    with pytest.raises(CorpusError, match=message):
        open_source(str(tmp_path / name))
    if is_readable:
        assert open_source(f"text:{tmp_path / name}").files, "whoever names the kind knows"


def test_beside_text_other_files_are_left_out_and_counted(tmp_path):
    for name in ("a.txt", "b.pdf", "c.pdf", "d.md", "README"):
        (tmp_path / name).write_text(WORDS)
    source = open_source(str(tmp_path))
    assert [file.name for file in source.files] == ["a.txt"]
    assert source.left_out == "2 .pdf, 1 without suffix, 1 .md"


def test_files_that_are_no_text_can_be_skipped_with_the_damaged_ones(tmp_path):
    (tmp_path / "a.txt").write_text(WORDS)
    for name in ("b.txt", "c.txt"):
        (tmp_path / name).write_bytes(FILES["pdf"][0])
    with pytest.raises(CorpusError, match=r"b\.txt.*leave such files out: --damaged-files skip"):
        open_source(str(tmp_path))
    found = list(open_source(str(tmp_path), damaged_files="skip").raw_documents())
    assert found[1:] == [
        Skipped(str(tmp_path / name), 0, "not a text file") for name in ("b.txt", "c.txt")
    ]


def test_a_shard_folder_is_no_text_and_says_how_to_train_on_it(tmp_path):
    for name in ("manifest.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(
        CorpusError, match=f"a shard folder; train on it with --data.shards {tmp_path}"
    ):
        open_source(str(tmp_path))


@pytest.mark.parametrize("name", ["a.txt", "a b.txt", "a.jsonl.gz"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32"])
def test_the_command_for_another_encoding_converts_the_file(tmp_path, name, encoding):
    file, text = tmp_path / name, "Le café est fermé à Noël, où qu'on aille.\nПривет.\n" * 40
    content = text.encode(encoding)
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    with pytest.raises(CorpusError, match="is UTF-(16|16LE|16BE|32), not UTF-8") as error:
        list(open_source(f"text:{file}").raw_documents())
    subprocess.run(str(error.value).partition("convert it: ")[2], shell=True, check=True)
    (converted,) = tmp_path.glob("*.utf8*")
    assert converted.read_text(encoding="utf-8") == text
    assert converted.suffix == (".jsonl" if "jsonl" in name else ".txt")


def test_a_mark_of_utf8_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_text("words", encoding="utf-8-sig")
    (raw,) = open_source(str(tmp_path / "a.txt")).raw_documents()
    assert raw.content == b"words"
