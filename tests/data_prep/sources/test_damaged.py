"""Sources that are damaged, unusual, or made to exhaust memory or time."""

import bz2
import gzip
import lzma
import os
import time
from xml.sax.saxutils import escape

import pyarrow
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from data_prep.files import hub as hub_access
from data_prep.sources import compression, tables, text, wikiextractor, wikipedia
from data_prep.sources.source import CorpusError, RawDocument, Skipped, paragraphs_of
from data_prep.sources.spec import open_source

COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": lambda content: b"".join(
        bz2.compress(content[start : start + 9000]) for start in range(0, len(content), 9000)
    ),
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def read(name, damaged_files="stop"):
    """Return the documents of a source, and what was skipped, in order."""
    source = open_source(str(name), damaged_files=damaged_files)
    found = []
    for raw in source.raw_documents():
        if isinstance(raw, Skipped):
            found.append(raw)
        else:
            parsed = source.parse(raw)
            found += [*parsed.skipped, *([parsed.paragraphs] if parsed.paragraphs else [])]
    return found


def page(wikitext):
    return (
        "<page><title>T</title><ns>0</ns><revision>"
        f"<text>{escape(wikitext)}</text></revision></page>"
    )


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


@given(
    content=st.text(st.sampled_from("ab \t\r\n"), max_size=60).map(str.encode),
    separator=st.sampled_from(["blank_line", "line", "file"]),
    block_bytes=st.sampled_from([1, 2, 5, 1000]),
)
def test_blocks_of_any_size_give_the_documents_of_the_lines(
    tmp_path_factory, content, separator, block_bytes
):
    file = tmp_path_factory.getbasetemp() / "blocks.txt"
    file.write_bytes(content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text, "BLOCK_BYTES", block_bytes)
        source = open_source(f"{file}:documents={separator}")
        raw = list(source.raw_documents())
    found = [(document.line, source.parse(document).paragraphs) for document in raw]
    assert found == [
        (line, [words.decode() for words in paragraphs])
        for line, paragraphs in by_definition(content, separator)
    ]


@given(
    content=st.text(st.sampled_from("ab é日\n"), max_size=200),
    longest=st.integers(4, 30),
    block_bytes=st.sampled_from([1, 7, 1000]),
    separator=st.sampled_from(["blank_line", "line", "file"]),
)
def test_long_documents_come_in_parts_that_lose_no_character(
    tmp_path_factory, content, longest, block_bytes, separator
):
    file = tmp_path_factory.getbasetemp() / "parts.txt"
    file.write_text(content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text, "BLOCK_BYTES", block_bytes)
        patched.setattr(text, "LONGEST_DOCUMENT", longest)
        source = open_source(f"{file}:documents={separator}")
        raw = list(source.raw_documents())
    assert all(len(document.content) <= longest for document in raw)
    parsed = [source.parse(document) for document in raw]
    assert not any(found.skipped for found in parsed), "a character was cut"
    characters = "".join("".join(found.paragraphs) for found in parsed)
    assert characters.replace(" ", "") == "".join(content.split())
    assert not (raw and raw[-1].cut)
    lines = content.split("\n")
    for document in raw:
        first = document.content.split()[0].decode()
        assert first in lines[document.line - 1]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_what_lies_before_the_damage_is_read(tmp_path, suffix):
    documents = [f"Document {n * 7919 % 10007} of words." for n in range(10_000)]
    whole = COMPRESS[suffix]("\n\n".join(documents).encode())
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(whole[: len(whole) * 4 // 5])
    *found, damage = read(file, damaged_files="skip")
    assert [paragraph for (paragraph,) in found] == documents[: len(found)]
    assert len(found) > 2000
    line_reached = 2 * len(found) - 1
    assert damage.reason == "file cut short or damaged"
    assert line_reached <= damage.line <= line_reached + 2


def test_a_dictionary_that_is_larger_than_the_memory_is_a_damaged_file(tmp_path, monkeypatch):
    def too_large(*_):
        raise MemoryError

    file = tmp_path / "a.txt.xz"
    file.write_bytes(lzma.compress(b"text"))
    monkeypatch.setattr(lzma.LZMAFile, "read1", too_large)
    with pytest.raises(CorpusError, match=r"a\.txt\.xz: .*unpacking it needs more memory than"):
        read(file)


def test_a_missing_file_is_counted_or_named(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    for damaged_files in ("skip", "stop"):
        source = open_source(str(tmp_path), damaged_files=damaged_files)
        (tmp_path / "b.txt").unlink(missing_ok=True)
        (tmp_path / "b.txt").symlink_to(tmp_path / "nowhere")
        if damaged_files == "stop":
            with pytest.raises(CorpusError, match=r"b\.txt: .*No such file"):
                list(source.raw_documents())
        else:
            names = [os.path.basename(item.file) for item in source.raw_documents()]
            assert names == ["a.txt", "b.txt", "c.txt"]
        assert len(source.identity()) == 3


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


@pytest.mark.parametrize("target", ["private", "private/key.txt"])
def test_a_link_out_of_the_folder_is_refused(tmp_path, target):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key.txt").write_text("secret\n")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").symlink_to(tmp_path / target)
    with pytest.raises(CorpusError, match=rf"texts/a\.txt: a link out of .*, to .*{target};"):
        read(tmp_path / "texts")
    assert read(f"{tmp_path / 'texts'}:links=follow") == [["secret"]]
    with pytest.raises(CorpusError, match="links=all is unknown"):
        read(f"{tmp_path / 'texts'}:links=all")


def test_zstandard_frames_and_long_windows_are_read_and_bombs_do_not_burst(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    compressors = (
        zstandard.ZstdCompressor(),
        zstandard.ZstdCompressor(compression_params=parameters),
    )
    content = b"".join(
        compressor.compressobj().compress(b"") + compressor.compress(b"frame\n\n")
        for compressor in compressors
    )
    (tmp_path / "a.txt.zst").write_bytes(content)
    assert read(tmp_path / "a.txt.zst") == [["frame"], ["frame"]]
    bomb = zstandard.ZstdCompressor().compress(bytes(200 << 20))
    (tmp_path / "b.zst").write_bytes(bomb)
    with compression.opened(tmp_path / "b.zst") as (stream, _):
        assert len(stream.read1(1 << 20)) <= 1 << 20
        assert len(stream.raw._decompressor._content) <= 64 << 20


@pytest.mark.parametrize("title", ["A", "A > B", 'The "A"', "A &amp; B"])
def test_the_title_that_wikiextractor_repeats_is_left_out(tmp_path, title):
    file = tmp_path / "wiki_00"
    file.write_text(f'<doc id="1" url="u" title="{title}">\n{title}\n\nWords.\n</doc>\n')
    assert read(file) == [["Words."]]
    file.rename(tmp_path / "any.txt")
    assert read(tmp_path) == [["Words."]], "known by its beginning, whatever its name"


def test_long_articles_come_in_parts_and_long_lines_take_linear_time(tmp_path, monkeypatch):
    file = tmp_path / "wiki_00"
    file.write_bytes(b"<doc " + b"a " * 1_000_000)
    start = time.process_time()
    assert read(file)[0] == Skipped(str(file), 1, "article without </doc>")
    assert time.process_time() - start < 10
    monkeypatch.setattr(wikiextractor, "LONGEST_DOCUMENT", 60)
    words = [f"word{n}" for n in range(100)]
    file.write_text('<doc id="1" url="u" title="T">\nT\n\n' + "\n".join(words) + "\n</doc>\n")
    source = open_source(str(file))
    raw = list(source.raw_documents())
    assert [document.cut for document in raw] == [True] * (len(raw) - 1) + [False]
    assert [p for document in raw for p in source.parse(document).paragraphs] == words


def test_json_that_is_no_json_lines_says_how_to_convert_it(tmp_path):
    (tmp_path / "a.json").write_text('{\n "text": "x"\n}\n')
    with pytest.raises(CorpusError, match=r"JSON over several lines.* jq -c"):
        read(tmp_path / "a.json")
    (tmp_path / "b.jsonl").write_text('damaged\n{"body": "x"}\n')
    with pytest.raises(CorpusError, match="has no column 'text', it has body"):
        read(tmp_path / "b.jsonl")


def test_one_bad_row_does_not_end_a_parquet_file_and_any_string_type_is_read(tmp_path):
    rows = pyarrow.array([b"fine", b"\xff", b"too"]).view(pyarrow.string())
    types = {
        "string": rows,
        "large": pyarrow.array(["a", None], pyarrow.large_string()),
        "view": pyarrow.array(["a", None], pyarrow.string_view()),
        "dictionary": pyarrow.array(["a", None]).dictionary_encode(),
    }
    for name, column in types.items():
        file = tmp_path / f"{name}.parquet"
        parquet.write_table(pyarrow.table({"text": column}), file)
        if name == "string":
            expected = [["fine"], Skipped(str(file), 2, "not valid UTF-8"), ["too"]]
        else:
            expected = [["a"], Skipped(str(file), 2, "the text is null")]
        assert read(file) == expected
    packed = tmp_path / "packed.parquet.gz"
    packed.write_bytes(gzip.compress((tmp_path / "large.parquet").read_bytes()))
    assert read(packed) == [["a"], Skipped(str(packed), 2, "the text is null")]


def test_a_line_of_a_whole_library_is_cut_into_paragraphs_at_spaces():
    words = [f"word{n}" for n in range(400_000)]
    paragraphs = paragraphs_of(" ".join(words))
    assert len(paragraphs) > 3
    assert max(map(len, paragraphs)) <= 1 << 20
    assert " ".join(paragraphs).split() == words
    solid = "x" * (3 << 20)
    assert "".join(paragraphs_of(solid)) == solid


def test_dumps_in_parts_are_known_and_their_index_is_not_text(tmp_path):
    name = "enwiki-20240101-pages-articles-multistream1.xml-p1p41242.bz2"
    (tmp_path / name).write_bytes(bz2.compress(f"<mediawiki>{page('Words.')}</mediawiki>".encode()))
    index = "enwiki-20240101-pages-articles-multistream-index1.txt-p1p41242.bz2"
    (tmp_path / index).write_bytes(bz2.compress(b"600:10:Anarchism\n"))
    assert read(tmp_path) == [["Words."]]


@pytest.mark.parametrize("encoding", ["utf-7", "big5", "hex", "nonsense"])
def test_a_dump_in_an_unknown_encoding_is_an_error(tmp_path, encoding):
    file = tmp_path / "a.xml"
    file.write_text(f'<?xml version="1.0" encoding="{encoding}"?><mediawiki/>')
    with pytest.raises(CorpusError, match=r"a\.xml: cannot be read after line 0"):
        read(file)


def test_xml_that_is_no_dump_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(wikipedia, "LONGEST_WAIT", 1 << 18)
    file = tmp_path / "a.xml"
    file.write_text("<library>" + "<book>words</book>" * 100_000 + "</library>")
    with pytest.raises(CorpusError, match="bytes of XML without the end of a page"):
        read(file)


def test_surrogates_are_left_out_and_line_breaks_are_kept(tmp_path):
    file = tmp_path / "a.xml"
    file.write_text(f"<mediawiki>{page('A &#xD800; b.<br>C &#xDFFF; d.')}</mediawiki>")
    assert read(file) == [["A b.", "C d."]]


@pytest.mark.parametrize(
    "markup", ["<ref name=a ", "<b>", "[http://a ", "{|\n", "{{a|b=", "[[a|", "<!-- ", "{{{a|"]
)
def test_markup_that_is_never_closed_takes_no_time(tmp_path, markup):
    file = tmp_path / "a.xml"
    file.write_text(f"<mediawiki>{page(markup * 50_000)}{page('Fine.')}</mediawiki>")
    start = time.process_time()
    assert read(file) == [Skipped(str(file), 1, "page with unclosed markup"), ["Fine."]]
    assert time.process_time() - start < 10


@pytest.mark.parametrize("hidden", ["{{a| ]] ", "[[a| }} ", "[http://a [[b]] ", "<b> --> "])
def test_the_end_of_another_construct_hides_no_markup_that_is_never_closed(tmp_path, hidden):
    file = tmp_path / "a.xml"
    file.write_text(f"<mediawiki>{page(hidden * 1_000)}{page('Fine.')}</mediawiki>")
    assert read(file) == [Skipped(str(file), 1, "page with unclosed markup"), ["Fine."]]
    closed = "Before. ]0, 1[ {{a}} [[b]] [http://a b] <b>c</b> {{a|}} "
    closed += "[[File:a.jpg|t [http://a b]]] [[fr:x]] [http://a [[b]]] "
    file.write_text(f"<mediawiki>{page(closed * 200)}</mediawiki>")
    assert [len(found) for found in read(file)] == [1]  # what is closed is read


def test_parts_of_a_dump_are_measured_by_their_text_and_names_are_limited(tmp_path):
    file = tmp_path / "a.xml"
    file.write_text(f"<mediawiki>{page('Long text. ' * 1000)}</mediawiki>")
    (raw,) = open_source(str(file)).raw_documents()
    assert len(raw.content) == 11_000
    names = "".join(f'<namespace key="6">n{number}</namespace>' for number in range(1001))
    file.write_text(f"<mediawiki>{names}{page('Text.')}</mediawiki>")
    with pytest.raises(CorpusError, match="over 1000 names of namespaces"):
        list(open_source(str(file)).raw_documents())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_declarations_are_refused_before_they_expand(tmp_path, encoding):
    file = tmp_path / "a.xml"
    entity = f'<!DOCTYPE m [<!ENTITY e "{"x" * 9}">]>'
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?>{entity}<mediawiki>{page("&e;.")}</mediawiki>'
    )
    file.write_bytes(text.encode(encoding))
    with pytest.raises(CorpusError, match="a DOCTYPE, which no dump has"):
        list(open_source(str(file)).raw_documents())


def test_many_references_and_breaks_are_nothing_unusual(tmp_path):
    file = tmp_path / "a.xml"
    wikitext = "Text<ref name=a /> goes<ref>b</ref> on.<br>More &lt; of [it].\n" * 300
    file.write_text(f"<mediawiki>{page(wikitext)}</mediawiki>")
    (found,) = read(file)
    assert found[:2] == ["Text goes on.", "More < of [it]."]


def test_names_that_cannot_be_paths_are_no_files():
    for name in ("x" * 5000, "a/" * 3000, "a\x00b", "", ":", "text:", "jsonl:weight=2"):
        with pytest.raises(CorpusError):
            open_source(name)


def test_wikiextractors_files_that_are_damaged_say_so_when_they_are_read(tmp_path):
    for suffix in COMPRESS:
        (tmp_path / f"wiki_00{suffix}").write_bytes(b"garbage")
        source = open_source(str(tmp_path / f"wiki_00{suffix}"))
        with pytest.raises(CorpusError, match=f"wiki_00{suffix}: cannot be read after line 0"):
            list(source.raw_documents())


def test_the_position_of_a_plain_file_never_goes_back(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("words\n\n" * 1000)
    raw = [item for item in open_source(str(file)).raw_documents() if isinstance(item, RawDocument)]
    places = [document.read_bytes for document in raw]
    assert places == sorted(places)
    assert places[-1] == file.stat().st_size


@pytest.mark.parametrize("setting", ["https_proxy", "offline"])
def test_behind_a_proxy_or_offline_the_hubs_own_library_finds_its_way(monkeypatch, setting):
    from huggingface_hub import constants

    def connect(*_):
        raise AssertionError("connected past the proxy")

    monkeypatch.setattr(hub_access.socket, "create_connection", connect)
    if setting == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        monkeypatch.setenv(setting, "http://proxy.example:3128")
    hub_access.connect_to_hub()


def test_a_null_in_parquet_or_on_the_hub_has_a_size_like_everything_that_is_read(tmp_path):
    parquet.write_table(pyarrow.table({"text": ["a", None, ""]}), tmp_path / "a.parquet")
    for name in (str(tmp_path), f"hub:{tmp_path}"):
        raw = [item for item in open_source(name).raw_documents() if isinstance(item, RawDocument)]
        assert all(len(document.content) >= 0 for document in raw)
        assert ["a"] in read(name)


def test_a_text_that_parquet_stores_once_is_not_decoded_for_every_row(tmp_path, monkeypatch):
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["word " * 200_000] * 300}), file)
    assert file.stat().st_size < 100_000
    monkeypatch.setattr(tables, "BYTES_PER_BATCH", 4_000_000)
    decoded = []
    iterate = parquet.ParquetFile.iter_batches

    def iter_batches(self, *arguments, **options):
        for batch in iterate(self, *arguments, **options):
            decoded.append(batch.nbytes)
            yield batch

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", iter_batches)
    assert len(list(open_source(str(file)).raw_documents())) == 300
    assert max(decoded) < 5_000_000
    plain = tmp_path / "b.parquet"  # what is stored for every row takes no more than the file
    parquet.write_table(pyarrow.table({"text": ["word"] * 300}), plain, use_dictionary=False)
    decoded.clear()
    assert len(list(open_source(str(plain)).raw_documents())) == 300
    assert len(decoded) == 2


def test_rows_without_text_and_files_that_swell_are_refused(tmp_path):
    file = tmp_path / "a.parquet"
    nulls = pyarrow.array([None] * 3_000_000, pyarrow.string())
    parquet.write_table(pyarrow.table({"text": nulls}), file)
    with pytest.raises(CorpusError, match="declares 3,000,000 rows in [0-9,]+ bytes, so nearly"):
        list(open_source(str(file)).raw_documents())
    packed = tmp_path / "a.parquet.gz"
    packed.write_bytes(gzip.compress(bytes(1_000_000)))
    with pytest.raises(CorpusError, match="unpacks to more than 100 times its size"):
        list(open_source(f"parquet:{packed}").raw_documents())
