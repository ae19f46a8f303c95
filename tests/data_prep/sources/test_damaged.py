"""Sources that are damaged or unusual."""

import bz2
import gzip
import lzma

import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from data_prep.sources import text
from data_prep.sources.source import CorpusError, Skipped, paragraphs_of
from data_prep.sources.spec import open_source
from tests.data_prep.sources.source_case import read

COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": lambda content: b"".join(
        bz2.compress(content[start : start + 4000]) for start in range(0, len(content), 4000)
    ),
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def by_definition(content, separator):
    """Return the documents of plain text, line by line: (first line, words of each line)."""
    documents, current = [], None
    for number, line in enumerate(content.split(b"\n"), start=1):
        words = b" ".join(line.split())
        if separator == "line" or (separator == "blank_line" and not words):
            current = None
        if words:
            if current is None:
                current = (number, [])
                documents.append(current)
            current[1].append(words)
    return documents


@settings(max_examples=50, deadline=None)
@given(
    content=st.text(st.sampled_from("ab \t\r\n"), max_size=60).map("\n{}".format).map(str.encode),
    separator=st.sampled_from(["blank_line", "line", "file"]),
)
def test_text_files_give_the_documents_of_the_lines(tmp_path_factory, content, separator):
    file = tmp_path_factory.getbasetemp() / "blocks.txt"
    file.write_bytes(content)
    source = open_source(f"{file}:documents={separator}")
    raw = list(source.read())
    found = [(document.line, source.paragraphs(document)) for document in raw]
    assert found == [
        (line, [words.decode() for words in paragraphs])
        for line, paragraphs in by_definition(content, separator)
    ]


@settings(max_examples=50, deadline=None)
@given(
    content=st.text(st.sampled_from("ab é日\n"), max_size=200),
    longest=st.integers(4, 30),
    separator=st.sampled_from(["blank_line", "line", "file"]),
)
def test_long_documents_come_in_parts_that_lose_no_character(
    tmp_path_factory, content, longest, separator
):
    file = tmp_path_factory.getbasetemp() / "parts.txt"
    file.write_text(content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text, "LONGEST_DOCUMENT", longest)
        source = open_source(f"{file}:documents={separator}")
        raw = list(source.read())
    assert all(len(document.text.encode()) <= longest for document in raw)
    assert not any(document.skipped for document in raw), "a character was cut"
    characters = "".join("".join(source.paragraphs(document)) for document in raw)
    assert characters.replace(" ", "") == "".join(content.split())
    assert not (raw and raw[0].continues)
    lines = content.split("\n")
    for document in raw:
        first = document.text.split()[0]
        assert first in lines[document.line - 1]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_cut_short_stops_the_build_or_what_lies_before_is_read(tmp_path, suffix):
    documents = [f"Document {n * 7919 % 10007} of words." for n in range(9_000)]
    whole = COMPRESS[suffix]("\n\n".join(documents).encode())
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(whole[: len(whole) * 4 // 5])
    with pytest.raises(CorpusError, match=r"cannot be read after line .*--data.damaged_files skip"):
        list(open_source(str(file)).read())
    *found, damage = open_source(str(file), damaged_files="skip").read()
    assert [document.text for document in found] == documents[: len(found)]
    assert len(found) > 400
    line_reached = 2 * len(found) - 1
    assert damage.skipped[0].reason == "file cut short or damaged"
    assert line_reached <= damage.line <= line_reached + 2


def test_zstandard_frames_and_long_windows_are_read(tmp_path):
    long_window = zstandard.ZstdCompressionParameters(window_log=28)
    compressors = [zstandard.ZstdCompressor(compression_params=one) for one in (None, long_window)]
    content = b"".join(
        compressor.compressobj().compress(b"") + compressor.compress(b"frame\n\n")
        for compressor in compressors
    )
    (tmp_path / "a.txt.zst").write_bytes(content)
    assert read(tmp_path / "a.txt.zst") == [["frame"], ["frame"]]


def test_the_title_that_wikiextractor_repeats_is_left_out(tmp_path):
    file = tmp_path / "wiki_00"
    for title in ("A", "A > B", 'The "A"', "A &amp; B"):
        file.write_text(f'<doc id="1" url="u" title="{title}">\n{title}\n\nWords.\n</doc>\n')
        assert read(file) == [["Words."]]
    file.rename(tmp_path / "any.txt")
    assert read(tmp_path) == [["Words."]], "known by its beginning, whatever its name"


def test_any_string_type_of_parquet_is_read_and_what_is_not_utf8_is_skipped(tmp_path):
    file = tmp_path / "a.parquet"
    for column in (
        pyarrow.array(["a", None], pyarrow.large_string()),
        pyarrow.array(["a", None], pyarrow.string_view()),
        pyarrow.array(["a", None]).dictionary_encode(),
    ):
        parquet.write_table(pyarrow.table({"text": column}), file)
        assert read(file) == [["a"], Skipped(str(file), 2, "the text is null")]
    rows = pyarrow.array([b"fine", b"\xff", b"too"])
    strings = rows.view(pyarrow.string())
    for column in (rows, strings, strings.dictionary_encode()):
        parquet.write_table(pyarrow.table({"text": column}), file)
        assert read(file) == [["fine"], Skipped(str(file), 2, "not valid UTF-8"), ["too"]]


def test_a_line_of_a_whole_library_is_cut_into_paragraphs_at_spaces():
    words = [f"word{n}" for n in range(200_000)]
    paragraphs = paragraphs_of(" ".join(words))
    assert len(paragraphs) > 1
    assert max(map(len, paragraphs)) <= 1 << 20
    assert " ".join(paragraphs).split() == words
    solid = "x" * (3 << 20)
    assert "".join(paragraphs_of(solid)) == solid
