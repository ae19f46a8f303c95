"""Files that are not text are refused by their names or their first bytes, before they are read."""

import gzip
import io

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from data_prep.sources.source import CorpusError, Skipped
from data_prep.sources.spec import open_source, open_sources
from tests.data_prep.sources.source_case import read

WORDS = "Some words of a text, one line after the other.\n" * 50
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def table():
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["a", "b"]}), stream)
    return stream.getvalue()


def test_all_files_that_cannot_be_read_are_named_once_with_the_reason_or_skipped(tmp_path):
    bad = {
        "b.txt": np.random.default_rng(0).bytes(5000),
        "c.txt.gz": gzip.compress(PNG),
        "d.txt": WORDS.encode("utf-16-le"),
        "e.txt": WORDS.replace("\n", "\r").encode(),
        "f.txt.gz": b"no gzip",
    }
    for name, content in {"a.txt": WORDS.encode(), **bad}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "g.jsonl").write_bytes(table())
    b, c, d, e, f, g = (str(tmp_path / name) for name in (*bad, "g.jsonl"))
    corpus = [f"text:{tmp_path}", g]
    with pytest.raises(CorpusError) as error:
        open_sources(corpus, "stop")
    assert str(error.value) == (
        f"these files cannot be read: {b}, {c}, {d}, {g} (binary data, or UTF-16 without a "
        f"byte-order mark); {e} (lines end with carriage returns alone, which tr '\\r' '\\n' "
        f"replaces); {f} (Not a gzipped file (b'no')); repair them, convert them (iconv) or "
        "leave them out: --data.damaged_files skip"
    )
    found = [item for name in corpus for item in read(name, damaged_files="skip")]
    no_text = [Skipped(file, 0, "not a text file") for file in (b, c, d, e, g)]
    damaged = Skipped(f, 0, "file cut short or damaged")
    assert found[1:] == [*no_text[:4], damaged, no_text[4]] and len(found[0]) == 50


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


def test_a_shard_folder_is_no_text_and_says_how_to_train_on_it(tmp_path):
    for name in ("manifest.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(CorpusError, match=f"a shard folder; train on it with .* {tmp_path}"):
        open_source(str(tmp_path))
