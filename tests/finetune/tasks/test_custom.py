import csv
import json
import re

import pyarrow
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from finetune.tasks.custom import OwnTask, read_own
from finetune.tasks.examples import labels_of
from finetune.tasks.tables import read_rows
from finetune.tasks.task import Example, TaskError

ROWS = [
    {"text": 'She said "no, never".', "label": "neg"},
    {"text": "Two lines,\none text", "label": "pos"},
    {"text": "", "label": "neg"},
]


def written(file, rows):
    """Write rows in the format of the suffix, with the writers of Python."""
    if file.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif file.suffix == ".csv":
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = [list(rows[0]), *(row.values() for row in rows)]
        file.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    return file


def own(folder, rows, *, suffix=".jsonl", **settings):
    train = written(folder / f"train{suffix}", rows)
    dev = written(folder / f"dev{suffix}", rows)
    return OwnTask(**{"train": train, "dev": dev, **settings})


def refused(task):
    with pytest.raises(TaskError) as caught:
        read_own(task)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_any_number_of_labels_is_a_list_or_a_text_with_separators(tmp_path, suffix):
    lists = [["b", "a"], [], ["c"], ["a"], ["c", "b"]]  # the last as numpy writes it
    cells = ["b; a", "", "['c']", "a|", "['c' 'b']"] if suffix == ".csv" else lists
    rows = [{"text": f"text {n}", "label": cell} for n, cell in enumerate(cells)]
    data = read_own(own(tmp_path, rows, suffix=suffix, multi_label=True))
    assert data.task.labels == ("a", "b", "c") and data.task.metrics[0] == "micro_f1"
    assert [example.label for example in data.train] == [(0, 1), (), (2,), (0,), (1, 2)]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_csv_json_lines_and_parquet_hold_what_was_written(tmp_path, suffix):
    data = read_own(own(tmp_path, ROWS, suffix=suffix))
    assert data.task.labels == ("neg", "pos")
    assert data.train == [
        Example((row["text"],), int(row["label"] == "pos"), str(number))
        for number, row in enumerate(ROWS)
    ]
    assert data.development["dev"] == data.train
    assert (data.task.metrics, data.test) == (("accuracy", "macro_f1", "matthews", "f1"), {})


def test_quotes_in_tsv_are_ordinary_characters_and_a_pair_is_in_the_order_of_the_settings(tmp_path):
    rows = [{"b": 'She said "no".', "a": word, "label": word} for word in ('"', '"y"')]
    data = read_own(own(tmp_path, rows, suffix=".tsv", texts=("a", "b")))
    assert data.train[0] == Example(('"', 'She said "no".'), 0, "0")
    assert any("train.tsv: 1 text in quotes, which TSV keeps" in note for note in data.notes)


def test_csv_of_a_spreadsheet_in_utf16_and_binary_parquet_are_text(tmp_path):
    rows = ["text;label", '"Zürich; ""x""\nand";a', "one, two;b"]
    file = tmp_path / "a.csv"
    file.write_bytes("\r\n".join(rows).encode("utf-16"))
    found = [example.texts[0] for example in read_own(OwnTask(train=file, dev=file)).train]
    assert found == ['Zürich; "x"\nand', "one, two"]
    cells = {"text": [text.encode() for text in found], "image": 2 * [b"\xff"], "label": ["a", "b"]}
    parquet.write_table(pyarrow.table(cells), file.with_suffix(".parquet"))
    file = file.with_suffix(".parquet")
    data = read_own(OwnTask(train=file, dev=file))
    assert [example.texts[0] for example in data.train] == found
    rows = read_rows(file, ["text"], every_column=True)
    assert [row.values["text"] for row in rows] == found


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_empty_line_of_a_file_of_one_column_is_an_empty_text(tmp_path, suffix, end):
    """Predictions are by the number of the row."""
    texts = ["", "one", "", "two", ""]
    test = tmp_path / f"test{suffix}"
    test.write_bytes("".join(text + end for text in ("text", *texts)).encode())
    found = read_own(own(tmp_path, ROWS, test=test)).test["test"]
    assert found == [Example((text,), None, str(number)) for number, text in enumerate(texts)]


def test_empty_last_lines_of_several_columns_are_nothing(tmp_path):
    test = tmp_path / "test.tsv"
    test.write_text("text\tother\none\t1\n\n\n")
    found = read_own(own(tmp_path, ROWS, test=test)).test["test"]
    assert found == [Example(("one",), None, "0")]


def test_the_names_of_columns_in_a_txt_are_no_example(tmp_path):
    file = tmp_path / "train.txt"
    file.write_text("text\tlabel\none\ta\ntwo\tb\n")
    data = read_own(OwnTask(train=file, dev=file))
    assert (data.task.labels, len(data.train)) == (("a", "b"), 2)


def test_a_regression_has_numbers(tmp_path):
    rows = [{"text": "t", "label": value} for value in ("1e-1", 2, -0.5)]
    data = read_own(own(tmp_path, rows, regression=True))
    assert [example.label for example in data.train] == [0.1, 2.0, -0.5]
    assert (data.task.kind, data.task.labels) == ("regression", ())
    assert data.task.metrics == ("pearson", "spearman")
    for start, is_warned in ((1.7e9, True), (1950, False)):
        rows = [{"text": f"t{n}", "label": start + n} for n in range(9)]
        notes = read_own(own(tmp_path, rows, regression=True)).notes
        assert any("too little for fp32" in note for note in notes) == is_warned


def test_a_row_keeps_its_side_when_rows_are_added_and_so_do_equal_texts(tmp_path):
    few = read_own(own(tmp_path, many_rows(300), dev=None))
    many = read_own(own(tmp_path, many_rows(600)[::-1] + many_rows(300), dev=None))
    held_out = {example.texts for example in many.development["dev"]}
    assert {example.texts for example in few.development["dev"]} <= held_out
    assert not held_out & {example.texts for example in many.train}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "sst2"}, "name='sst2' is a task of GLUE; choose another name"),
        ({"texts": ("label",)}, "name a column twice: label, label"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        OwnTask(train="train.csv", **settings)


@pytest.mark.parametrize(
    "words",
    [("1_2", "12"), ("9007199254740992", "9007199254740993"), ("2", "1e30"), ("56e1234567", "1")],
)
def test_labels_are_what_the_file_spells(words):
    assert set(labels_of([*words] * 3, "file")) == set(words)


def many_rows(number):
    return [{"text": f"sentence {index}", "label": "xy"[index % 2]} for index in range(number)]


def test_texts_that_are_empty_or_trained_on_have_a_warning(tmp_path):
    rows = "text\tlabel\na\tyes \nb\tno\nc\tno\n \tyes\n"
    train, dev = (tmp_path / name for name in ("train.tsv", "dev.tsv"))
    train.write_text(rows)
    dev.write_text(rows.replace("c\t", "new\t"))
    assert read_own(OwnTask(train=train, dev=dev)).notes == (
        "F1 is that of label 'yes'",
        f"warning: 1 row of {train} without text",
        f"warning: the texts of 3 rows of {dev} are in {train} too",
        "2 of the 4 development examples are 'no', fewer than 20: give a larger --dev",
    )


def test_without_a_development_file_a_tenth_of_the_training_rows_is_held_out(tmp_path):
    data = read_own(own(tmp_path, many_rows(2000), dev=None))
    held_out = data.development["dev"]
    assert len(data.train) + len(held_out) == 2000
    assert not set(data.train) & set(held_out)
    # one in 10, within four standard deviations: 4 sqrt(2000 x 0.1 x 0.9)
    assert abs(len(held_out) - 200) < 54
    note = f"no development file: {len(held_out)} of the 2,000 rows are held out"
    assert data.notes == ("F1 is that of label 'y'", note)


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        (["x"] * 3, {}, "holds no label but 'x'"),
        (
            ["x", "y"],
            {"dev": None},
            "train.jsonl: 2 rows are too few, or too alike, to hold some out; give a dev",
        ),
        ([n / 7 for n in range(11)] * 3, {}, "11 different labels in 33 rows.*--regression"),
        ([f"sentence {n}" for n in range(40)], {}, "40 different labels in 40 rows"),
        *(
            ([1, value], {"regression": True}, "train.jsonl, row 2: label .* is not a finite num")
            for value in ("high", "nan", float("inf"), 10**400, "1_2")
        ),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(tmp_path, labels, settings, message):
    rows = [{"text": "t", "label": label} for label in labels]
    assert re.search(message, refused(own(tmp_path, rows, **settings)))


def test_a_label_that_training_never_showed_is_refused(tmp_path):
    task = own(tmp_path, ROWS)
    written(task.dev, [*ROWS, {"text": "t", "label": "plan"}])
    message = refused(task)
    assert "dev.jsonl, row 4: unknown label 'plan' in column 'label'; own has neg, pos" in message


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".csv", b'text,label\na,x\n"b,y\n', "row 3: not CSV: unexpected end of data"),
        (".csv", b"txt,label\na,x\n", "row 1: no column 'text'; did you mean txt?; it has txt, l"),
        (".csv", b"\n\n", "is empty; its first row must name the columns text, label"),
        (".jsonl", b"", "holds no rows"),
        (".jsonl", b'{"text": "a", "label": "x"}\n{"text": "a"}\n', "row 2: no column 'label'"),
        (".jsonl", b'{"text": "a", "label": null}\n', "column 'label' holds no label but null"),
        (".jsonl", b'{"text": 5, "label": "x"}\n{"text": 5, "label": "y"}', "holds no text but"),
        (".jsonl", b'{"text": "\\ud800", "label": "x"}\n{"text": "", "label": 1}', "no text but"),
        (".jsonl", b"[" * 100_000, "is not a JSON object"),
        (".xlsx", b"PK", "unknown format '.xlsx'; use .tsv, .csv, .jsonl or .parquet"),
        (".csv", None, "cannot be read: No such file or directory"),
    ],
)
def test_a_bad_file_is_answered_with_file_row_and_fix(tmp_path, suffix, content, message):
    file = tmp_path / f"train{suffix}"
    if content is not None:
        file.write_bytes(content)
    answer = refused(OwnTask(train=file, dev=file))
    assert str(file) in answer and message in answer
