"""Files that are not text are refused by their names or their first bytes, before they are read."""

import gzip
import io

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from data_prep.sources.source import CorpusError, Skipped
from data_prep.sources.spec import open_source
from tests.data_prep.sources.source_case import read

WORDS = "Some words of a text, one line after the other.\n" * 50
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def table():
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["a", "b"]}), stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [np.random.default_rng(0).bytes(5000), table(), PNG, WORDS.encode("utf-16")],
    ids=["noise", "parquet", "png", "utf-16"],
)
def test_what_is_no_text_is_refused_by_its_first_bytes(tmp_path, content):
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
    "name", ["a.PDF", "a.xml", "enwiki-2024-pages-articles1.xml-p1p41242.bz2", "a.tar.gz"]
)
def test_a_name_that_is_no_text_is_refused_with_what_to_do(tmp_path, name):
    (tmp_path / name).write_bytes(WORDS.encode())
    for place in (tmp_path / name, tmp_path):
        with pytest.raises(CorpusError, match=f"{name}: not plain text; .*pdf.*text:.*{name}"):
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
    (tmp_path / "b.txt").write_bytes(PNG)
    with pytest.raises(CorpusError, match=r"b\.txt.*leave such files out: --data.damaged_files"):
        open_source(str(tmp_path))
    found = read(tmp_path, damaged_files="skip")
    assert found[1:] == [Skipped(str(tmp_path / "b.txt"), 0, "not a text file")]


def test_a_shard_folder_is_no_text_and_says_how_to_train_on_it(tmp_path):
    for name in ("manifest.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(CorpusError, match=f"a shard folder; train on it with .* {tmp_path}"):
        open_source(str(tmp_path))
