import csv
import json

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from pydantic import ValidationError

from finetune.tasks.custom import OwnTask, read_own
from finetune.tasks.held_out import is_held_out
from finetune.tasks.labels import labels_of
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
def test_csv_json_lines_and_parquet_hold_what_was_written(tmp_path, suffix):
    data = read_own(own(tmp_path, ROWS, suffix=suffix))
    assert data.task.labels == ("neg", "pos")
    assert data.train == [
        Example((row["text"],), int(row["label"] == "pos"), str(number))
        for number, row in enumerate(ROWS)
    ]
    assert data.development["dev"] == data.train
    assert (data.task.metrics, data.test) == (("accuracy", "macro_f1", "matthews", "f1"), {})


def test_quotes_in_tsv_are_ordinary_characters(tmp_path):
    data = read_own(own(tmp_path, [ROWS[0], {"text": '"', "label": "pos"}], suffix=".tsv"))
    assert [example.texts for example in data.train] == [('She said "no, never".',), ('"',)]


def test_a_pair_has_two_columns_in_the_order_of_the_settings(tmp_path):
    rows = [{"b": "second", "a": "first", "label": word} for word in ("x", "y")]
    data = read_own(own(tmp_path, rows, suffix=".tsv", texts=("a", "b")))
    assert data.train[0] == Example(("first", "second"), 0, "0")


def test_a_test_file_needs_no_labels(tmp_path):
    test = written(tmp_path / "test.csv", [{"text": "new", "other": "1"}])
    data = read_own(own(tmp_path, ROWS, test=test))
    assert data.test == {"test": [Example(("new",), None, "0")]}


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_empty_line_of_a_file_of_one_column_is_an_empty_text(tmp_path, suffix, end):
    """Predictions are by the number of the row."""
    texts = ["", "one", "", "two", ""]
    test = tmp_path / f"test{suffix}"
    test.write_bytes("".join(text + end for text in ("text", *texts)).encode())
    found = read_own(own(tmp_path, ROWS, test=test)).test["test"]
    assert found == [Example((text,), None, str(number)) for number, text in enumerate(texts)]


@pytest.mark.parametrize("separator", [",", "\t"])
def test_empty_lines_at_the_end_of_several_columns_are_no_rows(tmp_path, separator):
    test = tmp_path / ("test.csv" if separator == "," else "test.tsv")
    test.write_text(f"text{separator}other\none{separator}1\n\n\n")
    found = read_own(own(tmp_path, ROWS, test=test)).test["test"]
    assert found == [Example(("one",), None, "0")]


def test_labels_that_are_numbers_stand_in_the_order_of_numbers(tmp_path):
    rows = [{"text": "t", "label": number} for number in (10, 9, -1, 9)]
    data = read_own(own(tmp_path, rows))
    assert data.task.labels == ("-1", "9", "10")
    assert [example.label for example in data.train] == [2, 1, 0, 1]


def test_true_and_false_are_labels(tmp_path):
    data = read_own(own(tmp_path, [{"text": "t", "label": value} for value in (True, False)]))
    assert data.task.labels == ("false", "true")


def test_a_regression_has_numbers(tmp_path):
    rows = [{"text": "t", "label": value} for value in ("1e-1", 2, -0.5)]
    data = read_own(own(tmp_path, rows, regression=True))
    assert [example.label for example in data.train] == [0.1, 2.0, -0.5]
    assert (data.task.kind, data.task.labels) == ("regression", ())
    assert data.task.metrics == ("pearson", "spearman")


def test_the_byte_order_mark_of_a_spreadsheet_is_no_part_of_the_first_column(tmp_path):
    task = own(tmp_path, ROWS, suffix=".csv")
    task.train.write_bytes(b"\xef\xbb\xbf" + task.train.read_bytes())
    assert len(read_own(task).train) == 3


def test_the_column_without_a_name_that_pandas_writes_is_passed_over(tmp_path):
    rows = [{"": str(number), **row} for number, row in zip((7, 8, 9), ROWS, strict=True)]
    data = read_own(own(tmp_path, rows, suffix=".csv"))
    assert [example.identity for example in data.train] == ["0", "1", "2"]


def many_rows(number):
    return [{"text": f"sentence {index}", "label": "xy"[index % 2]} for index in range(number)]


def test_without_a_development_file_a_tenth_of_the_training_rows_is_held_out(tmp_path):
    data = read_own(own(tmp_path, many_rows(2000), dev=None))
    held_out = data.development["dev"]
    assert len(data.train) + len(held_out) == 2000
    assert not set(data.train) & set(held_out)
    # one in 10, within four standard deviations: 4 sqrt(2000 x 0.1 x 0.9)
    assert abs(len(held_out) - 200) < 54
    (note,) = data.notes
    assert note.startswith(f"no development file: {len(held_out)} of the 2,000 rows of ")


def warnings_of(task):
    return [note for note in read_own(task).notes if note.startswith("warning: ")]


def test_few_held_out_rows_have_a_warning_and_many_have_none(tmp_path):
    assert not warnings_of(own(tmp_path, many_rows(2000), dev=None))
    task = own(tmp_path, many_rows(300), dev=None)
    number = len(read_own(task).development["dev"])
    (warning,) = warnings_of(task)
    assert f"{number} held-out rows: each of them is {100 / number:.2g} points" in warning


def test_a_class_whose_rows_are_all_held_out_has_a_warning(tmp_path):
    held_out = next(f"rare {n}" for n in range(1000) if is_held_out((f"rare {n}",)))
    trained_on = next(f"rare {n}" for n in range(1000) if not is_held_out((f"rare {n}",)))
    for texts, is_warned in (([held_out], True), ([held_out, trained_on], False)):
        rows = [*many_rows(2000), *({"text": text, "label": "z"} for text in texts)]
        task = own(tmp_path, rows, dev=None)
        line = f"warning: all rows of {task.train} with label z are held out, and none is trained"
        assert [warning.startswith(line) for warning in warnings_of(task)] == [True] * is_warned


def test_texts_of_training_rows_in_the_development_file_are_counted(tmp_path):
    task = own(tmp_path, many_rows(40))
    new = [{"text": f"other {number}", "label": "x"} for number in range(12)]
    written(task.dev, new)
    assert not warnings_of(task)
    written(task.dev, [*new, *many_rows(4)[2:], {"text": "sentence 3", "label": "x"}])
    (warning,) = warnings_of(task)
    assert f"3 of the 15 rows of {task.dev} (20.0%) have texts of training rows" in warning
    assert "such as row number 13:" in warning


def test_a_pair_recurs_if_both_of_its_texts_do(tmp_path):
    rows = [{"a": "one", "b": str(number), "label": number % 2} for number in range(4)]
    task = own(tmp_path, rows, texts=("a", "b"))
    written(task.dev, [{"a": "one", "b": "4", "label": 0}, {"a": "1", "b": "one", "label": 1}])
    assert not warnings_of(task)


def test_a_row_keeps_its_side_when_rows_are_added_and_so_do_equal_texts(tmp_path):
    few = read_own(own(tmp_path, many_rows(300), dev=None))
    many = read_own(own(tmp_path, many_rows(600)[::-1] + many_rows(300), dev=None))
    held_out = {example.texts for example in many.development["dev"]}
    assert {example.texts for example in few.development["dev"]} <= held_out
    assert not held_out & {example.texts for example in many.train}


def test_two_texts_are_not_one_that_is_cut_elsewhere():
    pairs = [((f"{number}a", "b"), (f"{number}", "ab")) for number in range(200)]
    assert any(is_held_out(one) != is_held_out(other) for one, other in pairs)


def test_too_few_rows_to_hold_some_out_are_refused(tmp_path):
    message = refused(own(tmp_path, many_rows(2), dev=None))
    assert "train.jsonl: 2 rows are too few to hold some out; give a development file" in message


def test_a_label_that_training_never_showed_is_refused(tmp_path):
    task = own(tmp_path, ROWS)
    written(task.dev, [*ROWS, {"text": "t", "label": "neutral"}])
    message = refused(task)
    assert "dev.jsonl, row 4: unknown label 'neutral' in column 'label'" in message
    assert "own has neg, pos" in message


def test_measured_values_are_no_classes(tmp_path):
    rows = [{"text": "t", "label": number / 7} for number in range(11)]
    message = refused(own(tmp_path, rows))
    assert "column 'label' holds 11 different numbers, such as 0.1" in message
    assert "--regression" in message
    assert len(read_own(own(tmp_path, rows, regression=True)).train) == 11


@pytest.mark.parametrize("spelling", ["1.0", "01", "1e0", 1.0])
def test_two_spellings_of_a_number_are_not_two_classes(tmp_path, spelling):
    rows = [{"text": "t", "label": word} for word in ("1", 0, spelling)]
    message = refused(own(tmp_path, rows))
    assert "'1'" in message and f"{str(spelling)!r}" in message
    assert message.endswith("which would be two classes; spell the number in one way")


def test_one_spelling_of_a_number_in_each_file_is_refused(tmp_path):
    task = own(tmp_path, [{"text": "t", "label": number} for number in (0, 1)])
    written(task.dev, [{"text": "t", "label": "1.0"}])
    assert "dev.jsonl, row 1: unknown label '1.0'" in refused(task)


def test_few_grades_with_halves_are_classes(tmp_path):
    rows = [{"text": "t", "label": grade / 2} for grade in range(10)]
    assert len(read_own(own(tmp_path, rows)).task.labels) == 10


def test_one_label_alone_is_refused(tmp_path):
    assert "holds 'x' in every row" in refused(own(tmp_path, [{"text": "t", "label": "x"}] * 3))


def test_one_value_alone_is_refused(tmp_path):
    task = own(tmp_path, [{"text": "t", "label": 3}] * 3, regression=True)
    assert "holds '3' in every row" in refused(task)


def test_labels_that_differ_in_spaces_are_not_two_classes(tmp_path):
    rows = [{"text": "t", "label": word} for word in ("pos", "neg", "pos ")]
    assert "holds 'pos' and 'pos ', which would be two classes" in refused(own(tmp_path, rows))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_a_text_may_be_long(tmp_path, suffix):
    rows = [{"text": letter * 200_000, "label": letter} for letter in "ab"]
    data = read_own(own(tmp_path, rows, suffix=suffix))
    assert [len(example.texts[0]) for example in data.train] == [200_000] * 2


def test_a_column_of_texts_is_not_taken_for_labels(tmp_path):
    rows = [{"text": "t", "label": f"sentence {number}"} for number in range(40)]
    assert "40 different labels in 40 rows" in refused(own(tmp_path, rows))


BAD = [
    (".csv", b'text,label\na,x\n"b,y\n', "row 3: not CSV: unexpected end of data"),
    (".csv", b'text,label\n"a"b,x\n', "row 2: not CSV: "),
    (".csv", b'text,label\n"a\nb",x\nc\n', "row 4: 1 field where there are 2 columns"),
    (".csv", b"txt,label\na,x\n", "row 1: no column 'text'; did you mean txt?; it has txt, label"),
    (".csv", b"", "is empty; its first row must name the columns text, label"),
    (".csv", b"\n\n", "is empty"),
    (".tsv", b"", "is empty"),
    (".tsv", b"\xef\xbb\xbf\n", "is empty"),
    (".csv", b"text,label\n", "holds no rows"),
    (".tsv", b"text,label\na,x\n", "fields look separated by commas; give it the suffix .csv"),
    (".tsv", b"words,label\na,x\n", "no column 'text'; it has words,label;"),
    (".csv", b"text;label\na, b;x\n", "fields look separated by semicolons; save it with commas"),
    (".csv", b'\xef\xbb\xbf"label";"text"\r\nx;"a, b"\r\n', "look separated by semicolons"),
    (".csv", b"id\ttext\tlabel\n1\ta, b\tx\n", "look separated by tabs; save it with commas or,"),
    (".tsv", b"text;label\na;x\n", "look separated by semicolons; save it with commas"),
    (".jsonl", b'{"text": "a", "label": "x"}\n{"text": "a"}\n', "row 2: no column 'label'"),
    (".jsonl", b'{"text": "a", "label": null}\n', "row 1: column 'label' holds no label but null"),
    (".jsonl", b'{"text": "a", "label": NaN}\n', "row 1: column 'label' holds no label but NaN"),
    (".jsonl", b'{"text": "a", "label": ["x"]}\n', "row 1: column 'label' holds no label but list"),
    (
        ".jsonl",
        b'{"text": 5, "label": "x"}\n{"text": 5, "label": "y"}',
        "column 'text' holds no text",
    ),
    (
        ".jsonl",
        b'\n{"text": "\\ud800", "label": "x"}\n{"text": "", "label": 1}',
        "half of a surrogate pair",
    ),
    (".jsonl", b'[{"text": "a", "label": "x"}]\n', "row 1: [{"),
    (".jsonl", b"{\n", "row 1: { is not a JSON object"),
    (".jsonl", b"[" * 100_000, "is not a JSON object"),
    (".jsonl", b'{"text": "a", "label": 1' + b"0" * 5000 + b"}", "is not a JSON object"),
    (".jsonl", b"", "holds no rows"),
    (".xlsx", b"PK", "unknown format '.xlsx'; use .tsv, .csv, .jsonl or .parquet"),
]


@pytest.mark.parametrize(("suffix", "content", "message"), BAD)
def test_a_bad_file_is_answered_with_file_row_and_fix(tmp_path, suffix, content, message):
    file = tmp_path / f"train{suffix}"
    file.write_bytes(content)
    answer = refused(OwnTask(train=file, dev=file))
    assert str(file) in answer
    assert message in answer


@pytest.mark.parametrize("settings", [{}, {"metric": "accuracy"}, {"regression": True}])
def test_a_training_file_without_rows_is_called_that_whatever_is_asked_for(tmp_path, settings):
    file = tmp_path / "train.csv"
    file.write_text("text,label\n")
    message = refused(OwnTask(train=file, dev=file, **settings))
    assert message == f"{file} holds no rows; give a file with examples"


def test_a_file_that_is_not_there_is_named(tmp_path):
    message = refused(OwnTask(train=tmp_path / "train.csv"))
    assert message == f"{tmp_path / 'train.csv'} cannot be read: No such file or directory"


@pytest.mark.parametrize("value", ["high", "nan", float("inf"), 10**400, "1_2"])
def test_a_value_that_is_no_finite_number_is_refused(tmp_path, value):
    rows = [{"text": "t", "label": 1}, {"text": "t", "label": value}]
    message = refused(own(tmp_path, rows, regression=True))
    assert "train.jsonl, row 2: label " in message
    assert "is not a finite number" in message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "sst2"}, "name='sst2' is a task of GLUE; choose another name"),
        ({"name": "../mine"}, "pattern"),
        ({"texts": ("a", "b", "c")}, "at most 2"),
        ({"texts": ("label",)}, "name a column twice: label, label"),
        ({"metric": "acuracy"}, "metric='acuracy' does not exist; did you mean accuracy"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        OwnTask(train="train.csv", **settings)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("own")


@given(
    rows=st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from("xy")),
        min_size=2,
    ).filter(lambda rows: len({label for _, label in rows}) == 2)
)
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_any_text_is_read_as_it_was_written(scratch, suffix, rows):
    file = written(
        scratch / f"any{suffix}", [{"text": text, "label": label} for text, label in rows]
    )
    data = read_own(OwnTask(train=file, dev=file))
    assert [example.texts for example in data.train] == [(text,) for text, _ in rows]


@pytest.mark.parametrize(
    "words",
    [("1_2", "12"), ("9007199254740992", "9007199254740993"), ("2", "1e30"), ("56e1234567", "1")],
)
def test_labels_that_only_rounding_or_python_makes_equal_or_that_are_large_are_two(words):
    assert set(labels_of([*words] * 3, "file")) == set(words)
