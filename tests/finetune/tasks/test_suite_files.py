import pytest

from finetune.tasks.glue import GLUE
from finetune.tasks.suite_files import folders_of_tasks, read_task
from finetune.tasks.task import Example, TaskError
from pretrain.config.errors import ConfigError
from tests.finetune.small_glue import SMALL_GLUE, write_rows, write_small_glue

PAIR = ("A dog.", "A cat.")


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


def test_cola_has_no_header_but_in_its_test_file(glue):
    data = read("CoLA", glue)
    assert data.train == [
        Example(('One more "pseudo generalization.',), 1, "0"),
        Example(("They drank the pub.",), 0, "1"),
        Example(("The sailors\u2028rode the breeze.",), 1, "2"),
    ]
    assert data.development == {"dev": [Example(("He left before\x85has.",), 0, "0")]}
    assert data.test == {"test": [Example(("Bill whistled past the house.",), None, "0")]}
    assert data.notes == ()


def test_sst_2_has_an_index_in_its_test_file_only(glue):
    data = read("SST-2", glue)
    assert [(example.label, example.identity) for example in data.train] == [(0, "0"), (1, "1")]
    assert data.train[0].texts == ("hide new secretions from the parental units ",)
    assert data.test["test"] == [Example(("uneasy mishmash of styles .",), None, "0")]


def test_mrpc_begins_with_a_byte_order_mark(glue):
    assert (glue / "MRPC/train.tsv").read_bytes().startswith(b"\xef\xbb\xbfQuality")
    data = read("MRPC", glue)
    assert data.train[0] == Example(
        ('Amrozi said "the witness lied.', "He called it a lie."), 1, "0"
    )
    assert data.test["test"] == [Example(("Stocks rose.", "Stocks fell."), None, "0")]


def test_sts_b_has_numbers(glue):
    data = read("STS-B", glue)
    assert [example.label for example in data.train] == [5.0, 0.8]
    assert data.development["dev"] == [Example(PAIR, 1.25, "0")]
    assert data.test["test"][0].texts == ("A girl.", "A boy.")


def test_broken_rows_of_qqp_are_left_out_counted_and_shown(glue):
    data = read("QQP", glue)
    assert [example.identity for example in data.train] == ["133273", "402555"]
    assert [example.label for example in data.train] == [0, 1]
    (note,) = data.notes
    assert "train.tsv: 2 broken rows left out; the first: " in note
    assert "train.tsv, row 4: 4 fields where there are 6 columns" in note
    assert data.test["test"] == [Example(("Who?", "Whom?"), None, "0")]


def test_a_qqp_of_mostly_broken_rows_is_refused(glue):
    header, *rows = SMALL_GLUE["QQP/train.tsv"]
    write_rows(glue / "QQP/train.tsv", [(*header, "more"), *rows])
    assert "row 2: 6 fields where there are 7 columns" in refused("QQP", glue)


def test_a_broken_row_of_a_test_file_is_refused(glue):
    write_rows(glue / "QQP/test.tsv", [("id", "question1", "question2"), ("0", "Who?")])
    assert "test.tsv, row 2: 2 fields where there are 3 columns" in refused("QQP", glue)


def test_mnli_has_two_development_and_test_sets_and_a_diagnosis(glue):
    data = read("MNLI", glue)
    assert data.development == {
        "dev_matched": [Example(("New rights.", "Benefits."), 1, "0")],
        "dev_mismatched": [Example(("Your gift.", "Thanks."), 2, "0")],
    }
    assert list(data.test) == ["test_matched", "test_mismatched", "test_ax"]
    cat = ("The cat sat on the mat.", "The cat did not sit on the mat.")
    assert data.test["test_ax"] == [Example(cat, None, "0")]


@pytest.mark.parametrize("place", ["MNLI/diagnostic.tsv", "AX/AX.tsv", "AX.tsv"])
def test_the_diagnosis_is_found_wherever_it_is_kept(glue, place):
    file = glue / "diagnostic/diagnostic.tsv"
    (glue / place).parent.mkdir(exist_ok=True)
    file.rename(glue / place)
    assert len(read("MNLI", glue).test["test_ax"]) == 1
    (glue / place).unlink()
    assert list(read("MNLI", glue).test) == ["test_matched", "test_mismatched"]


def test_pairs_that_mnlis_annotators_did_not_agree_on_are_left_out(glue):
    data = read("MNLI", glue)
    assert [(example.identity, example.label) for example in data.train] == [
        ("0", 1),
        ("1", 0),
        ("3", 2),
    ]
    assert [note for note in data.notes if "1 rows with label '-' left out" in note]


def test_mnli_without_its_mismatched_set_is_read_and_that_is_said(glue):
    (glue / "MNLI/dev_mismatched.tsv").unlink()
    data = read("MNLI", glue)
    assert list(data.development) == ["dev_matched"]
    assert "dev_mismatched.tsv is missing: MNLI is scored on dev_matched alone" in data.notes[0]


@pytest.mark.parametrize(("name", "labels"), [("QNLI", [0, 1]), ("RTE", [1, 0]), ("WNLI", [1, 0])])
def test_pairs_with_an_index(glue, name, labels):
    data = read(name, glue)
    rows = SMALL_GLUE[f"{name}/train.tsv"][1:]
    assert data.train == [
        Example((first, second), label, index)
        for (index, first, second, _), label in zip(rows, labels, strict=True)
    ]
    assert data.test["test"][0].label is None


@pytest.mark.parametrize("name", GLUE.tasks)
def test_test_files_can_be_missing(glue, name):
    for file in [*glue.rglob("*test*.tsv"), glue / "diagnostic/diagnostic.tsv"]:
        file.unlink()
    assert read(name, glue).test == {}


@pytest.mark.parametrize("name", GLUE.tasks)
def test_line_ends_of_windows_change_nothing(glue, name, tmp_path):
    for file, rows in SMALL_GLUE.items():
        write_rows(tmp_path / "windows" / file, rows, end="\r\n")
    expected, found = read(name, glue), read(name, tmp_path / "windows")
    assert found[:4] == expected[:4]


def test_a_zero_byte_and_a_missing_end_of_the_last_line_are_no_reason_to_stop(glue):
    (glue / "SST-2/train.tsv").write_bytes(b"sentence\tlabel\nzero \0 byte\t1\nlast\t0")
    assert read("SST-2", glue).train == [
        Example(("zero \0 byte",), 1, "0"),
        Example(("last",), 0, "1"),
    ]


@pytest.mark.parametrize("spelling", ["sst-2", "SST2", "sst_2", "sst2"])
def test_folders_are_found_in_the_spellings_in_use(glue, spelling):
    (glue / "SST-2").rename(glue / spelling)
    assert len(read("SST-2", glue).train) == 2


def test_the_folders_of_tasks_stand_in_glues_order(glue):
    assert list(folders_of_tasks(GLUE, glue)) == list(GLUE.tasks)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ConfigError, match="'.*/nowhere' cannot be read: No such file.*CoLA/"):
        read("CoLA", tmp_path / "nowhere")


def test_the_folder_of_one_task_is_answered_with_the_one_above(glue):
    with pytest.raises(ConfigError, match=f"folder of one task; give the one above it: {glue}"):
        read("RTE", glue / "RTE")


def test_a_task_that_is_not_there_is_answered_with_those_that_are(glue):
    for file in (glue / "RTE").iterdir():
        file.unlink()
    (glue / "RTE").rmdir()
    message = refused("RTE", glue)
    assert "has no folder RTE; of GLUE it holds CoLA, SST-2, MRPC" in message
    assert "put RTE/train.tsv, RTE/dev.tsv there" in message


def test_a_missing_file_is_answered_with_what_the_folder_holds(glue):
    (glue / "QNLI/train.tsv").rename(glue / "QNLI/train_subset.tsv")
    message = refused("QNLI", glue)
    assert "QNLI: train.tsv missing; QNLI needs train.tsv and dev.tsv" in message
    assert "holds dev.tsv, test.tsv, train_subset.tsv; download it" in message


def test_microsofts_own_files_of_mrpc_are_recognised(glue):
    (glue / "MRPC/train.tsv").rename(glue / "MRPC/msr_paraphrase_train.txt")
    (glue / "MRPC/dev.tsv").unlink()
    assert "train.tsv and dev.tsv missing" in refused("MRPC", glue)
    assert "msr_paraphrase_train.txt, whose rows GLUE's dev_ids.tsv divides" in refused(
        "MRPC", glue
    )


BAD = [
    ("RTE", b"index\tsentense1\tsentence2\tlabel\n", "row 1: no column 'sentence1'; did you mean"),
    ("RTE", b"index\tsentence1\tsentence2\tgold\n", "it has index, sentence1, sentence2, gold"),
    ("RTE", b"index\tlabel\tsentence1\tsentence2\tlabel\n", "two columns are called 'label'"),
    ("RTE", b"index\tsentence1\tsentence2\tlabel\n", "holds no examples"),
    ("RTE", b"", "is empty; its first row must name the columns"),
    (
        "RTE",
        b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailed\n",
        "row 2: unknown label 'ent",
    ),
    ("RTE", b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailed\n", "did you mean entailment?"),
    ("RTE", b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\t?\n", "RTE has entailment, not_entail"),
    (
        "RTE",
        b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\t\n",
        "row 2: column 'label' holds no label",
    ),
    ("RTE", b"index\tsentence1\tsentence2\tlabel\n0\ta\n", "row 2: 2 fields where there are 4"),
    ("RTE", b"index\tsentence1\tsentence2\tlabel\n0\ta\t\tb\te\n", "row 2: 5 fields where there"),
    ("RTE", b"index\tsentence1\tsentence2\tlabel\n\n0\ta\tb\tc\n", "row 2: 1 field where there"),
    ("CoLA", b"gj04\t1\t\n", "row 1: 3 fields where there are 4 columns"),
    ("CoLA", b"", "train.tsv holds no examples"),
    ("SST-2", b"sentence\tlabel\ngood\t1\nna\xefve\t1\n", "row 3: byte 24 (0xef) is not UTF-8"),
    ("SST-2", "sentence\tlabel\n".encode("utf-16"), "row 1: byte 0 (0xff) is not UTF-8"),
]
STS_HEADER = "index\tsentence1\tsentence2\tscore\n"


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_a_bad_file_is_answered_with_file_row_and_fix(glue, name, content, message):
    file = glue / name / "train.tsv"
    file.write_bytes(content)
    answer = refused(name, glue)
    assert str(file) in answer
    assert message in answer


@pytest.mark.parametrize("word", ["high", "nan", "inf", "-Infinity", "1,5"])
def test_a_score_that_is_no_finite_number_is_refused(glue, word):
    content = f"{STS_HEADER}0\ta\tb\t1.0\n1\ta\tb\t{word}\n"
    (glue / "STS-B/dev.tsv").write_text(content)
    assert f"dev.tsv, row 3: label '{word}' in column 'score' is not a finite" in refused(
        "STS-B", glue
    )


def test_a_score_left_empty_is_refused(glue):
    (glue / "STS-B/dev.tsv").write_text(f"{STS_HEADER}0\ta\tb\t\n")
    assert "dev.tsv, row 2: column 'score' holds no label but nothing" in refused("STS-B", glue)


def test_a_folder_in_the_place_of_a_file_is_refused(glue):
    (glue / "RTE/train.tsv").unlink()
    (glue / "RTE/train.tsv").mkdir()
    assert "train.tsv missing" in refused("RTE", glue)
