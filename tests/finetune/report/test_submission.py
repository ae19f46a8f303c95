import math
import zipfile

import pytest

from finetune.report.submission import Prediction, write_submission
from finetune.tasks.glue import GLUE
from finetune.tasks.task import TaskError


def predictions(values, identities=None):
    identities = range(len(values)) if identities is None else identities
    return [
        Prediction.model_construct(identity=str(identity), prediction=value)
        for identity, value in zip(identities, values, strict=True)
    ]


def content(task, split, values, folder, identities=None):
    write_submission(GLUE, {(task, split): predictions(values, identities)}, folder)
    (file,) = folder.glob("*.tsv")
    return file.read_bytes()


@pytest.mark.parametrize(
    ("task", "split", "values", "expected"),
    [
        ("RTE", "test", [1, 0], b"0\tnot_entailment\n1\tentailment\n"),
        ("CoLA", "test", [1, 0], b"0\t1\n1\t0\n"),
        ("MNLI", "test_ax", [0, 1, 2], b"0\tentailment\n1\tneutral\n2\tcontradiction\n"),
        # Three decimals between 0 and 5.
        ("STS-B", "test", [2.71828, -0.3, 5.4], b"0\t2.718\n1\t0.000\n2\t5.000\n"),
    ],
)
def test_predictions_are_written_as_glue_spells_them(tmp_path, task, split, values, expected):
    assert content(task, split, values, tmp_path) == b"index\tprediction\n" + expected


def test_rows_stand_in_the_order_of_the_numbers_of_their_index(tmp_path):
    assert content("SST-2", "test", [0, 1, 1, 0], tmp_path, [10, 9, 100, 1]) == (
        b"index\tprediction\n1\t0\n9\t1\n10\t0\n100\t1\n"
    )


def test_the_archive_holds_the_files_that_glues_server_wants_and_those_missing_are_named(tmp_path):
    names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm AX QNLI RTE WNLI"
    wanted = [f"{name}.tsv" for name in names.split()]
    assert write_submission(GLUE, {}, tmp_path) == wanted
    found = {(name, "test"): predictions([0]) for name in ("WNLI", "RTE")}
    (tmp_path / "notes.txt").write_text("mine")
    missing = write_submission(GLUE, found, tmp_path)
    assert missing == [name for name in wanted if name not in ("WNLI.tsv", "RTE.tsv")]
    with zipfile.ZipFile(tmp_path / "submission.zip") as archive:
        assert archive.namelist() == ["RTE.tsv", "WNLI.tsv"]
        assert archive.read("WNLI.tsv") == (tmp_path / "WNLI.tsv").read_bytes()
        assert archive.testzip() is None


def test_predictions_that_do_not_fit_the_examples_are_refused(tmp_path):
    with pytest.raises(TaskError, match="RTE test: two examples have the same index"):
        content("RTE", "test", [1, 0], tmp_path, [3, 3])
    with pytest.raises(TaskError, match="RTE test: index 'x1' is not a whole number"):
        content("RTE", "test", [1], tmp_path, ["x1"])
    with pytest.raises(ValueError, match="STS-B: the prediction nan is not finite"):
        content("STS-B", "test", [math.nan], tmp_path)
    assert not list(tmp_path.glob("*.tsv"))
