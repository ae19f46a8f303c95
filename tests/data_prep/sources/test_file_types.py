"""Files that are not text are refused by their first bytes or their names, before they are read."""

import gzip
import io
import pickle
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


def array():
    stream = io.BytesIO()
    np.save(stream, np.arange(9))
    return stream.getvalue()


FILES = {
    "dump": (
        b"<mediawiki>\n",
        "a Wikipedia dump.*WikiExtractor.*hub:wikimedia/wikipedia",
    ),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document.*pdftotext .*a.txt"),
    "zip": (archive("a.txt"), "a ZIP archive.*unzip"),
    "docx": (archive("[Content_Types].xml", "word/document.xml"), "a Word document.*pandoc"),
    "torch": (archive("archive/data.pkl"), "PyTorch file"),
    "image": (b"\x89PNG\r\n\x1a\n" + bytes(20), "an image.*leave it out"),
    "program": (b"\x7fELF\x02\x01\x01" + bytes(20), "an executable"),
    "windows": (b"MZ\x90\x00\x03\x00", "an executable"),
    "gzip": (gzip.compress(WORDS.encode()), r"compressed \(gz\).*mv .*a\.txt .*a\.txt\.gz"),
    "7z": (b"7z\xbc\xaf\x27\x1c\x00\x04", "a 7z archive"),
    "pickle": (pickle.dumps([WORDS]), "a Python pickle"),
    "numpy": (array(), "a NumPy file"),
    "hdf5": (hdf5(), "an HDF5 file"),
    "parquet": (table(), "a Parquet file.*parquet:"),
    "noise": (np.random.default_rng(0).bytes(5000), "binary data, not text"),
    "sqlite": (None, "an SQLite database"),
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
        ("a.csv", r"a CSV table.*text:.*a\.csv"),
        ("a.tsv", "a TSV table"),
        ("a.PDF", "a PDF document.*pdftotext"),
        ("a.docx", "a Word document.*pandoc"),
        ("a.epub", "an EPUB book.*pandoc"),
        ("a.html", "an HTML page.*pandoc"),
        ("a.xml", "an XML file"),
        ("enwiki-2024-pages-articles1.xml-p1p41242.bz2", "a Wikipedia dump.*WikiExtractor.*hub:"),
        ("a.zip", "a ZIP archive.*unzip"),
        ("a.tar", "a tar archive.*tar -xf"),
        ("a.tar.gz", "a tar archive.*tar -xf"),
    ],
)
def test_a_name_that_is_no_text_is_refused_with_what_to_do(tmp_path, name, message):
    is_readable = name.endswith(("sv", "ml"))
    (tmp_path / name).write_bytes(WORDS.encode() if is_readable else b"\x01\x90\xff" * 9)
    for place in (tmp_path / name, tmp_path):
        with pytest.raises(CorpusError, match=message.partition(".*text:")[0]):
            open_source(str(place))
    with pytest.raises(CorpusError, match=message):
        open_source(str(tmp_path / name))
    if is_readable:
        assert open_source(f"text:{tmp_path / name}").files, "whoever names the kind knows"


@pytest.mark.parametrize("name", ["europarl.pt", "europarl.pt.gz", "notes.doc", "words.db"])
@pytest.mark.parametrize("folder", [True, False])
def test_text_is_not_refused_for_its_name(tmp_path, name, folder):
    text = f"{4095 * 'a'}é {WORDS}".encode()  # the first bytes end within a character
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    if folder:
        with pytest.raises(CorpusError, match="say what its files are, for example text:FOLDER"):
            open_source(str(tmp_path))
    else:
        (raw,) = open_source(str(tmp_path / name)).raw_documents()
        assert raw.content.decode() == text.decode().strip()


@pytest.mark.parametrize("name", ["a.pt", "a.pt.gz"])
@pytest.mark.parametrize("content", [pickle.dumps([1]), FILES["torch"][0], "olá".encode("latin-1")])
def test_what_is_no_text_is_refused_for_its_name(tmp_path, name, content):
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(CorpusError, match="a Python pickle or PyTorch file"):
        open_source(str(tmp_path / name))


def test_the_command_for_a_table_converts_it(tmp_path):
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        file = tmp_path / f"a{suffix}"
        file.write_text(f"id{separator}text\n1{separator}Some words.\n")
        with pytest.raises(CorpusError) as error:
            open_source(str(file))
        _, _, command = str(error.value).partition("column=NAME: ")
        subprocess.run(command.partition("; to read")[0], shell=True, check=True)
        (raw,) = open_source(f"{file}.parquet:column=text").raw_documents()
        assert raw.content == b"Some words."


def test_beside_text_other_files_are_left_out_and_counted(tmp_path):
    for name in ("a.txt", "b.pdf", "c.pdf", "d.csv", "README"):
        (tmp_path / name).write_text(WORDS)
    source = open_source(str(tmp_path))
    assert [file.name for file in source.files] == ["a.txt"]
    assert source.left_out == "2 .pdf, 1 without suffix, 1 .csv"


def test_files_that_are_no_text_can_be_skipped_with_the_damaged_ones(tmp_path):
    (tmp_path / "a.txt").write_text(WORDS)
    for name in ("b.txt", "c.txt"):
        (tmp_path / name).write_bytes(FILES["pdf"][0])
    with pytest.raises(CorpusError, match=r"b\.txt.*2 of 3 files.*--damaged-files skip"):
        open_source(str(tmp_path))
    found = list(open_source(str(tmp_path), damaged_files="skip").raw_documents())
    assert found[1:] == [
        Skipped(str(tmp_path / name), 0, "not a text file") for name in ("b.txt", "c.txt")
    ]


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["run.json", "metrics.jsonl", "tokenizer.json", "manifest.json"], "run folder"),
        (["manifest.json", "tokenizer.json", "train-00000.h5"], "shard folder"),
        (["config.json", "model.safetensors", "tokenizer.json"], "model folder"),
    ],
)
def test_folders_of_this_program_are_left_out_and_alone_are_refused(tmp_path, names, what):
    inner = tmp_path / "inner"
    inner.mkdir()
    for name in names:
        (inner / name).write_text("{}")
    with pytest.raises(CorpusError, match=f"no file of a known kind but the {what} {inner}"):
        open_source(str(inner))
    (tmp_path / "a.txt").write_text(WORDS)
    source = open_source(str(tmp_path))
    assert [file.name for file in source.files] == ["a.txt"]
    assert source.left_out == f"the {what} {inner}"
