import shutil

import pytest

from finetune.tasks.glue import GLUE
from finetune.tasks.suite_files import read_task
from finetune.tasks.task import Example, TaskError
from tests.finetune.small_glue import write_small_glue


@pytest.fixture
def glue(tmp_path):
    return write_small_glue(tmp_path / "glue")


def read(name, folder):
    return read_task(GLUE, GLUE.tasks[name], str(folder))


def refused(name, folder):
    with pytest.raises(TaskError) as caught:
        read(name, folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


# As tests/finetune/small_glue.py writes them, with the quirks of each task's files.
EXPECTED = {
    "CoLA": [
        *[('One more "pseudo generalization.',), ("They drank the pub.",)],
        ("The sailors\u2028rode the breeze.",),
    ],
    "MRPC": [  # its files begin with a byte-order mark
        ('Amrozi said "the witness lied.', "He called it a lie."),
        ("Yucaipa owned it.", "They sold it, in 1998."),
    ],
    "STS-B": [
        ("A plane is taking off.", "An air plane is taking off."),
        ("A man plays a flute.", "A man eats."),
    ],
    "RTE": [("No weapons found.", "Weapons found."), ("A place of sorrow.", "A place.")],
}


@pytest.mark.parametrize(
    ("name", "labels"),
    [("CoLA", [1, 0, 1]), ("MRPC", [1, 0]), ("STS-B", [5.0, 0.8]), ("RTE", [1, 0])],
)
def test_training_examples_are_texts_labels_and_numbers_of_rows(glue, name, labels):
    data = read(name, glue)
    rows = zip(EXPECTED[name], labels, strict=True)
    assert data.train == [Example(texts, label, str(n)) for n, (texts, label) in enumerate(rows)]
    assert [example.label for example in data.test["test"]] == [None]


def test_broken_rows_of_qqp_are_left_out_counted_and_shown(glue):
    data = read("QQP", glue)
    assert [example.identity for example in data.train] == ["133273", "402555"]
    assert [example.label for example in data.train] == [0, 1]
    (note,) = data.notes
    assert "train.tsv: 2 broken rows left out; the first: " in note
    assert "train.tsv, row 4: 4 fields where there are 6 columns" in note
    assert data.test["test"] == [Example(("Who?", "Whom?"), None, "0")]


def test_mnli_has_two_development_and_test_sets_and_pairs_without_a_label_are_left_out(glue):
    data = read("MNLI", glue)
    assert data.development == {
        "dev_matched": [Example(("New rights.", "Benefits."), 1, "0")],
        "dev_mismatched": [Example(("Your gift.", "Thanks."), 2, "0")],
    }
    assert list(data.test) == ["test_matched", "test_mismatched"]
    assert [(each.identity, each.label) for each in data.train] == [("0", 1), ("1", 0), ("3", 2)]
    assert [note for note in data.notes if "1 rows with label '-' left out" in note]


def test_line_ends_of_windows_change_nothing(glue, tmp_path):
    windows = write_small_glue(tmp_path / "windows", end="\r\n")
    for name in GLUE.tasks:
        assert read(name, windows)[:4] == read(name, glue)[:4]


def test_a_zero_byte_and_a_missing_end_of_the_last_line_are_no_reason_to_stop(glue):
    (glue / "SST-2/train.tsv").write_bytes(b"sentence\tlabel\nzero \0 byte\t1\nlast\t0")
    assert read("SST-2", glue).train == [
        Example(("zero \0 byte",), 1, "0"),
        Example(("last",), 0, "1"),
    ]


def test_folders_are_found_in_the_spellings_in_use(glue):
    (glue / "SST-2").rename(glue / "sst2")
    assert len(read("SST-2", glue).train) == 2


def test_what_is_missing_is_answered_with_what_is_there(glue):
    (glue / "QNLI/train.tsv").rename(glue / "QNLI/train_subset.tsv")
    message = refused("QNLI", glue)
    assert "train.tsv missing; the folder holds dev.tsv, test.tsv, train_subset.tsv" in message
    shutil.rmtree(glue / "RTE")
    assert "has no folder RTE; add it, or leave the task out" in refused("RTE", glue)


RTE = b"index\tsentence1\tsentence2\tlabel\n"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("RTE/train", b"index\tsentense1\tsentence2\tlabel\n", "row 1: no column 'sentence1'; did"),
        ("RTE/train", RTE, "holds no examples"),
        ("RTE/train", RTE + b"0\ta\tb\tentailed\n", "row 2: unknown label 'entailed'"),
        ("RTE/train", RTE + b"0\ta\n", "row 2: 2 fields where there are 4 columns"),
        ("CoLA/train", b"", "holds no examples"),
        ("SST-2/train", b"sentence\tlabel\ngood\t1\nna\xefve\t1\n", "byte 0xef in position 24"),
        ("STS-B/dev", b"index\tsentence1\tsentence2\tscore\n0\ta\tb\t1,5\n", "is not a finite num"),
        ("QQP/test", b"id\tquestion1\tquestion2\n0\tWho?\n", "2 fields where there are 3 columns"),
        # Of broken rows alone the first is named.
        ("QQP/dev", b"id\tquestion1\tquestion2\tis_duplicate\n0\tWho?\n", "row 2: 2 fields where"),
    ],
)
def test_a_bad_file_is_answered_with_file_row_and_fix(glue, file, content, message):
    (glue / f"{file}.tsv").write_bytes(content)
    answer = refused(file.split("/")[0], glue)
    assert f"{glue / file}.tsv" in answer and message in answer
