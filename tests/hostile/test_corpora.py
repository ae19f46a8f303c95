"""Texts that were made to fill the memory or to take for ever."""

import gzip
import time
import tracemalloc

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from data_prep.pipeline import reading
from data_prep.pipeline.build import build
from data_prep.settings import BuildSettings
from data_prep.sources import streams
from data_prep.sources.source import CorpusError
from data_prep.sources.spec import open_source
from data_prep.sources.streams import opened
from data_prep.text.sentences import split_sentences
from tests.data_prep.sources.source_case import read


def test_a_bomb_of_zstandard_does_not_burst(tmp_path):
    bomb = zstandard.ZstdCompressor().compress(bytes(200 << 20))
    (tmp_path / "b.zst").write_bytes(bomb)
    with opened(tmp_path / "b.zst") as (stream, _):
        assert len(stream.read1(1 << 20)) <= 1 << 20
        assert len(stream.raw._rest) <= 64 << 20


def test_a_line_of_any_length_is_read_in_parts(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"word " * (8 << 20))
    tracemalloc.start()
    size = sum(len(document.text) + 1 for document in open_source(str(tmp_path / "a.txt")).read())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 5 * (8 << 20) and peak < 20 << 20


@pytest.mark.parametrize(
    ("name", "unit"),
    [("a.jsonl", b"x"), ("a.csv", b"text,"), ("a.txt", b" "), ("b.txt:documents=file", b"\n")],
)
def test_a_line_or_document_that_unpacks_to_gigabytes_is_damage(tmp_path, monkeypatch, name, unit):
    monkeypatch.setattr(streams, "LONGEST_LINE", 1 << 18)
    name, _, key = name.partition(":")
    file = tmp_path / f"{name}.gz"
    first = b"text\n" * ("csv" in name)
    file.write_bytes(gzip.compress(first + unit * ((8 << 20) // len(unit)), 1))
    tracemalloc.start()
    with pytest.raises(CorpusError, match=r"cannot be read after line \d+: more than 0 MB in one"):
        list(open_source(f"{file}:{key}".rstrip(":")).read())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 7 << 20


def test_millions_of_nulls_are_refused_after_the_first_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "SEGMENT_RECORDS", 100)
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": pyarrow.nulls(20_000, pyarrow.string())}), file)
    with pytest.raises(CorpusError, match=r"400 of 400 documents were skipped .*the text is null"):
        build(BuildSettings(corpus=(str(file),)), tmp_path / "shards", workers=1)


def test_linked_folders_are_read_once_and_links_in_circles_end(tmp_path):
    texts = tmp_path / "texts"
    (texts / "x").mkdir(parents=True)
    (texts / "x" / "x.txt").write_text("linked\n")
    (texts / "a.txt").write_text("own\n")
    for name in ("b", "c"):
        (texts / name).symlink_to(texts / "x")
    (texts / "x" / "back").symlink_to(texts)
    (tmp_path / "link").symlink_to(texts)
    assert read(texts) == read(tmp_path / "link") == [["own"], ["linked"]]


@pytest.mark.parametrize("mark", ["“", "«", "„"])
def test_quotations_without_end_take_no_time(mark):
    paragraph = f"One. {mark}a. " * 50_000
    start = time.process_time()
    (sentences,) = split_sentences([paragraph], splitter="sentencex", language="en")
    assert "".join(sentences) == paragraph
    assert time.process_time() - start < 2
    (few,) = split_sentences([f"{mark}One.” Two."], splitter="sentencex", language="en")
    assert len(few) == 2


def test_names_that_cannot_be_paths_are_no_files():
    for name in ("x" * 5000, "a/" * 3000, "a\x00b", "", ":", "text:", "jsonl:weight=2"):
        with pytest.raises(CorpusError):
            open_source(name)
