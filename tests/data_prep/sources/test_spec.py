import bz2
import gzip
import json
import os
from pathlib import Path

import pyarrow
import pytest
from huggingface_hub import constants
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from data_prep.settings import PYTHON_DOCS
from data_prep.sources import python_docs, tables
from data_prep.sources.source import CorpusError, Document, Skipped
from data_prep.sources.spec import open_source, open_sources
from tests.data_prep.sources.source_case import read
from tests.data_prep.sources.test_damaged import COMPRESS as BY_SUFFIX

COMPRESS = {"": bytes, **BY_SUFFIX}


def extracted(*articles):
    return "".join(
        f'<doc id="{n}" url="https://x/{n}" title="{title}">\n{title}\n\n{body}\n</doc>\n'
        for n, (title, body) in enumerate(articles)
    )


# Text


@pytest.mark.parametrize("suffix", COMPRESS)
def test_text_files_are_paragraphs_with_empty_lines_between_documents(tmp_path, suffix):
    content = "\ufeffA  b\tc\r\nd\n\n\n  \nSecond\nZürich\n\u3000\u00a0\nThird"
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(COMPRESS[suffix](content.encode()))
    assert read(file) == [["A b c", "d"], ["Second", "Zürich"], ["Third"]]


def test_a_folder_is_read_file_by_file_in_order_without_hidden_ones(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "b" / "one.txt").write_text("third\n")
    (tmp_path / "A.Txt.GZ").write_bytes(gzip.compress(b"first\n\nsecond"))
    (tmp_path / ".hidden" / "x.txt").write_text("no")
    (tmp_path / ".x.txt").write_text("no")
    (tmp_path / "notes.pdf").write_text("no")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.txt")
    assert read(tmp_path) == [["first"], ["second"], ["third"]]


def test_lines_that_are_not_utf8_are_skipped_with_their_number(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\n\xff\xfe bad\ntwo\n\n\n\xc3\nthree \x00 nul\n")
    assert read(file) == [
        Skipped(str(file), 2, "not valid UTF-8"),
        ["one", "two"],
        Skipped(str(file), 6, "not valid UTF-8"),
        ["three \x00 nul"],
    ]


# Tables


def test_json_lines_are_documents_and_damaged_ones_are_skipped(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(
        b'{"body": "a\\nb  c", "id": 1}\n\n{"body": null}\n{"other": 1}\n[1]\n{"body"\n'
        b'{"body": "\\ud800"}\n{"body": "\xff"}\n{"body": 7}\n{"body": "last"}'
    )
    name = str(file)
    assert read(f"{file}:column=body") == [
        ["a", "b c"],
        Skipped(name, 3, "the text is null"),
        Skipped(name, 4, "the text column is missing"),
        Skipped(name, 5, "not a JSON object (of an array, jq -c '.[]' makes lines)"),
        Skipped(name, 6, "not valid JSON on one line"),
        Skipped(name, 7, "not valid UTF-8"),
        Skipped(name, 8, "not valid UTF-8"),
        Skipped(name, 9, "the text column holds no text"),
        ["last"],
    ]


@pytest.mark.parametrize(
    ("name", "mark", "encoding"),
    [
        ("a.csv", ",", "utf-8"),
        ("a.csv.gz", ";", "utf-8-sig"),
        ("a.csv", "\t", "utf-16"),
        ("a.tsv", "\t", "utf-16-be"),
    ],
)
def test_rows_of_csv_are_documents_with_any_separator_and_in_utf16(tmp_path, name, mark, encoding):
    content = f'id{mark}note\r\n1{mark}"a\nb, ""c"""\r\n\r\n2\r\n3{mark}x\ry\r\n4{mark}läst'
    file, mark_of_bytes = tmp_path / name, "\ufeff" * encoding.endswith("be")
    compress = COMPRESS.get(file.suffix, bytes)
    file.write_bytes(compress((mark_of_bytes + content).encode(encoding)))
    assert read(f"{file}:column=note") == [
        ["a", 'b, "c"'],
        Skipped(str(file), 5, "the row has another number of fields than the header"),
        ["x y"],
        ["läst"],
    ]


def test_a_file_without_the_column_is_refused_before_others_are_read(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n')
    (tmp_path / "infos.json").write_text('{"default": {}}\n')
    with pytest.raises(CorpusError, match="infos.json: has no column 'text', it has default"):
        open_sources([str(tmp_path)], "stop")


def test_utf16_cut_within_a_character_and_rows_that_are_no_csv_are_damage(tmp_path):
    (tmp_path / "a.txt").write_bytes(
        "One.\n\nTwo \ud800.\n\nThree.".encode("utf-16", "surrogatepass")[:-1]
    )
    file = str(tmp_path / "a.txt")
    assert read(file, "skip") == [
        ["One."],
        Skipped(file, 3, "not valid UTF-8"),
        Skipped(file, 4, "file cut short or damaged"),
    ]
    (tmp_path / "a.csv").write_text("")
    assert read(tmp_path / "a.csv") == []
    (tmp_path / "a.csv").write_text('text\none\n"two\nthree\n')
    with pytest.raises(CorpusError, match="a.csv: cannot be read after line 2: unexpected end of"):
        read(tmp_path / "a.csv")


def test_a_wrong_column_is_refused_at_once_with_the_ones_that_are_there(tmp_path):
    (tmp_path / "a.jsonl").write_text('damaged\n{"body": "x", "n": 1}\n')
    (tmp_path / "a.csv").write_text("body,n\nx,1\n")
    (tmp_path / "b.csv").write_text("body;n\nx;1\n")
    parquet.write_table(pyarrow.table({"body": ["x"], "n": [1]}), tmp_path / "a.parquet")
    texts = [pyarrow.array(["x"])] * 2
    parquet.write_table(pyarrow.Table.from_arrays(texts, ["text"] * 2), tmp_path / "b.parquet")
    with pytest.raises(CorpusError, match="b.parquet: two columns are called 'text'; rename one"):
        read(tmp_path / "b.parquet")
    for name in ("a.jsonl", "a.csv", "b.csv", "a.parquet"):
        with pytest.raises(CorpusError, match="has no column 'text', it has body, n; say which"):
            read(tmp_path / name)
    file = tmp_path / "a.parquet"
    assert read(f"{file}:column=n") == [Skipped(str(file), 1, "the text column holds no text")]


# WikiExtractor


def test_wikiextractor_output_is_known_by_its_names(tmp_path):
    (tmp_path / "AA").mkdir()
    content = extracted(("A &amp; B", "First &lt;one&gt;.\nSecond."), ("Empty", ""), ("C", "c"))
    (tmp_path / "AA" / "wiki_00").write_text(content)
    (tmp_path / "AA" / "wiki_01.bz2").write_bytes(bz2.compress(extracted(("D", "d")).encode()))
    assert read(tmp_path) == [["First <one>.", "Second."], ["c"], ["d"]]
    assert "2 WikiExtractor files" in open_source(str(tmp_path)).description
    (tmp_path / "wiki_00").write_text('{"id": "1", "title": "A", "text": "words"}\n')
    assert read(tmp_path / "wiki_00") == [["words"]], "its JSON is JSON Lines"
    assert open_source(str(tmp_path / "wiki_00")).is_wikipedia
    (tmp_path / "wiki_notes.jsonl").write_text('{"text": "words"}\n')
    assert not open_source(str(tmp_path / "wiki_notes.jsonl")).is_wikipedia


# The Hub


def test_a_data_set_is_streamed_and_continued(tmp_path, monkeypatch):
    parquet.write_table(
        pyarrow.table({"body": [f"document {n}" for n in range(9)] + [None]}),
        tmp_path / "train-00000.parquet",
    )
    name = f"hub:{tmp_path}:column=body"
    documents = [[f"document {n}"] for n in range(9)]
    assert read(name) == [*documents, Skipped(name, 10, "the text is null")]
    raw = list(open_source(name).read())
    assert read(name, start=raw[5].end) == read(name)[6:]
    with pytest.raises(CorpusError, match="no column 'text', it has body; say which"):
        read(f"hub:{tmp_path}")
    with pytest.raises(CorpusError, match="cannot be read: .*test"):
        read(f"hub:{tmp_path}:split=test")
    home = "/proc/no/home"
    monkeypatch.setattr(constants, "HF_HOME", home)
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: Path(home).mkdir(parents=True))
    with pytest.raises(CorpusError, match=f"cannot be read: HF_HOME={home} cannot be written; set"):
        read(name)


def test_without_a_network_the_hub_is_refused_fast_and_clearly(monkeypatch):
    def refused():
        raise OSError("Name or service not known")

    monkeypatch.setattr(tables, "connect_to_hub", refused)
    with pytest.raises(CorpusError, match="hub:nobody/texts: the Hugging Face Hub cannot be reach"):
        read("hub:nobody/texts")


# All of them


BEGINNINGS = {
    "text": b"",
    "jsonl": b'{"text": "x"}\n',
    "csv": b"id,text\n1,x\n",
    "parquet": b"PAR1",
    "wikiextractor": b'<doc id="1" title="T">\nT\nwords\n',
}


@pytest.mark.parametrize("kind", BEGINNINGS)
@settings(max_examples=15, deadline=None)
@given(
    suffix=st.sampled_from(sorted(COMPRESS)),
    noise=st.one_of(
        st.binary(max_size=300),
        st.text(st.sampled_from('{}[]"\\u0d8:text\n\x00<doc>/'), max_size=80).map(str.encode),
    ),
    is_compressed=st.booleans(),
    damaged_files=st.sampled_from(["stop", "skip"]),
)
def test_random_bytes_give_documents_or_one_clear_error(
    tmp_path_factory, kind, suffix, noise, is_compressed, damaged_files
):
    file = tmp_path_factory.getbasetemp() / f"noise{suffix}"
    content = BEGINNINGS[kind] + noise
    file.write_bytes(COMPRESS[suffix](content) if is_compressed else noise)
    try:
        found = read(f"{kind}:{file}", damaged_files=damaged_files)
    except CorpusError as error:
        assert str(file) in str(error)
        return
    for item in found:
        if isinstance(item, Skipped):
            assert item.file == str(file)
            continue
        for paragraph in item:
            assert paragraph == " ".join(paragraph.split()) != ""
            paragraph.encode("utf-8")


def sources_of_every_kind(folder):
    (folder / "text").mkdir()
    for name, compress in (("a.txt", bytes), ("b.txt.gz", gzip.compress)):
        content = f"{name} one\n\ntwo\n\xff\n\nthree\n".encode("latin-1")
        (folder / "text" / name).write_bytes(compress(content))
    (folder / "a.jsonl").write_text('{"text": "a"}\nbroken\n{"text": "b"}\n{"text": "c"}\n')
    parquet.write_table(pyarrow.table({"text": ["a", None, "c", "d"]}), folder / "a.parquet")
    (folder / "a.csv").write_text("text\na\nb\n\nc\n")
    (folder / "wiki_00").write_text(extracted(("A", "a"), ("B", "b")) + extracted(("C", "c")))
    names = ("text", "a.jsonl", "a.csv", "a.parquet", "wiki_00")
    return [str(folder / name) for name in names] + [PYTHON_DOCS]


def test_every_source_continues_where_it_was_left_and_notices_changes(tmp_path, monkeypatch):
    modules = tmp_path / "modules"
    modules.mkdir()
    for number in range(7):
        (modules / f"m{number}.py").write_text(f'"""Module number {number} moves the boats."""')
    monkeypatch.setattr(python_docs, "_installed_roots", lambda: [modules])
    for name in sources_of_every_kind(tmp_path):
        source = open_source(name)
        whole = list(source.read())
        documents = [item for item in whole if isinstance(item, Document)]
        assert len(documents) >= 3, name
        sizes = [document.read_bytes for document in documents]
        assert sizes == sorted(sizes)
        assert sizes[-1] <= source.num_bytes
        for document in documents[:5]:
            rest = whole[whole.index(document) + 1 :]
            assert list(source.read(document.end)) == rest, name
        # Other times of a file make another identity.
        before = source.identity()
        assert open_source(name).identity() == before == json.loads(json.dumps(before))
        if name != PYTHON_DOCS:
            os.utime(source.files[0], ns=(0, 1))
            assert open_source(name).identity() != before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("FOLDER/none.txt", "no such file or folder; give a file or folder of text.*--data.shards"),
        ("FOLDER/empty", "the folder holds no file of a known kind"),
        (
            "FOLDER/mixed",
            r"several kinds of files \(1 of jsonl, 1 of text\); .* jsonl:FOLDER/mixed",
        ),
        ("FOLDER/mixed/pipe", "not a regular file"),
        ("jsonk:FOLDER/mixed", "'jsonk' is no kind of source; the kinds are"),
        ("FOLDER/mixed/a.txt:wieght=2", "text has no key wieght; it has weight, documents"),
        ("FOLDER/mixed/a.txt:damaged_files=skip", "text has no key damaged_files"),
        ("hub:x:dataset=y", "hub has no key dataset; .* weight, config, split, revision, column"),
        ("FOLDER/mixed/a.txt:weight=0", "text cannot have weight=0: Input should be greater than"),
        (
            "FOLDER/mixed/a.txt:weight=much",
            "text cannot have weight=much: Input should be a valid number",
        ),
        (
            "FOLDER/mixed/a.txt:documents=lines",
            "documents=lines: Input should be 'blank_line', 'line' or",
        ),
    ],
)
def test_an_unknown_source_is_refused_with_what_is_known(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.bin").touch()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.txt").write_text("a")
    (tmp_path / "mixed" / "b.jsonl").write_text("{}")
    os.mkfifo(tmp_path / "mixed" / "pipe")
    with pytest.raises(CorpusError, match=message.replace("FOLDER", str(tmp_path))) as error:
        open_source(name.replace("FOLDER", str(tmp_path)))
    assert "\n" not in str(error.value)


def test_a_path_with_colons_is_a_path_if_it_exists_and_a_kind_picks_its_files(tmp_path):
    odd = tmp_path / "jsonl:a.txt:weight=2"
    odd.write_text("text\n")
    assert read(odd) == [["text"]]
    assert open_source(str(odd)).weight == 1
    assert open_source(f"text:{odd}:weight=0.5").weight == 0.5
    (tmp_path / "b.jsonl").write_text('{"text": "json"}')
    assert read(f"jsonl:{tmp_path}") == [["json"]]
    name = f"jsonl:{tmp_path}"
    assert open_source(name).description == f"{name} (1 JSON Lines files, 16 bytes)"
