"""The encoding that is guessed is the one that was written, and its command converts the file."""

import gzip
import subprocess

import pytest

from data_prep.sources.encoding import conversion, encoding_of_bytes, remedy_for
from data_prep.sources.source import CorpusError
from data_prep.sources.spec import open_source

FRENCH = "Le café est fermé à Noël, où qu'on aille.\nLa forêt est très belle cet été.\n" * 40
RUSSIAN = "Привет, это текст на русском языке.\n" * 40


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        (FRENCH, "latin-1", "ISO-8859-1"),
        (FRENCH.replace("café", "“café”"), "cp1252", "WINDOWS-1252"),
        (RUSSIAN, "cp1251", None),
        (RUSSIAN, "koi8-r", None),
        ("日本語の文章です。\n" * 40, "shift-jis", None),
    ],
)
def test_western_encodings_are_distinguished_and_others_are_not_guessed(text, encoding, expected):
    assert encoding_of_bytes(text.encode(encoding)) == expected


def test_a_file_of_several_encodings_has_none():
    lines = FRENCH.splitlines(keepends=True)
    both = [line.encode("utf-8" if n % 3 else "latin-1") for n, line in enumerate(lines)]
    assert encoding_of_bytes(b"".join(both)) is None


@pytest.mark.parametrize("name", ["a.txt", "a b.txt", "a.jsonl.gz"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le", "utf-16"])
def test_the_command_converts_the_file(tmp_path, name, encoding):
    file = tmp_path / name
    content = FRENCH.encode(encoding)
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    if encoding == "latin-1":
        _, _, command = remedy_for(file).partition("it looks like ISO-8859-1: ")
    else:
        with pytest.raises(CorpusError, match="is UTF-16(LE)?, not UTF-8") as error:
            list(open_source(f"text:{file}").raw_documents())
        _, _, command = str(error.value).partition("convert it: ")
    subprocess.run(command, shell=True, check=True)
    (converted,) = tmp_path.glob("*.utf8*")
    assert converted.read_text(encoding="utf-8") == FRENCH
    assert converted.suffix == (".jsonl" if "jsonl" in name else ".txt")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32"])
@pytest.mark.parametrize("text", [FRENCH, RUSSIAN])
def test_utf16_is_recognised_with_and_without_a_mark(tmp_path, text, encoding):
    (tmp_path / "a.txt").write_text(text, encoding=encoding)
    with pytest.raises(CorpusError, match="not UTF-8; convert it: iconv -f UTF-") as error:
        open_source(str(tmp_path / "a.txt"))
    name = str(error.value).partition("iconv -f ")[2].split()[0]
    assert (tmp_path / "a.txt").read_bytes().decode(name) == text


def test_a_mark_of_utf8_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_text("words", encoding="utf-8-sig")
    (raw,) = open_source(str(tmp_path / "a.txt")).raw_documents()
    assert raw.content == b"words"
    assert conversion(tmp_path / "a.txt", "X").startswith("iconv -f X -t UTF-8 ")
