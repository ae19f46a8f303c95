import math
import zipfile

import pytest

from finetune.report.submission import (
    Prediction,
    submission_files,
    write_predictions,
    zip_submission,
)
from finetune.tasks.glue import GLUE
from finetune.tasks.task import TaskError


def content(task, split, predictions, folder, identities=None):
    given = [
        Prediction.model_construct(identity=str(identity), prediction=prediction)
        for identity, prediction in zip(
            range(len(predictions)) if identities is None else identities, predictions, strict=True
        )
    ]
    return write_predictions(GLUE, GLUE.tasks[task], split, given, folder).read_bytes()


def test_labels_are_written_as_the_files_of_glue_spell_them(tmp_path):
    assert content("RTE", "test", [1, 0], tmp_path) == (
        b"index\tprediction\n0\tnot_entailment\n1\tentailment\n"
    )
    assert content("CoLA", "test", [1, 0], tmp_path) == b"index\tprediction\n0\t1\n1\t0\n"
    assert content("MNLI", "test_ax", [0, 1, 2], tmp_path) == (
        b"index\tprediction\n0\tentailment\n1\tneutral\n2\tcontradiction\n"
    )


def test_similarities_have_three_decimals_between_0_and_5(tmp_path):
    assert content("STS-B", "test", [2.71828, -0.3, 5.4, -0.0, 5], tmp_path) == (
        b"index\tprediction\n0\t2.718\n1\t0.000\n2\t5.000\n3\t0.000\n4\t5.000\n"
    )


def test_rows_stand_in_the_order_of_the_numbers_of_their_index(tmp_path):
    assert content("SST-2", "test", [0, 1, 1, 0], tmp_path, [10, 9, 100, 1]) == (
        b"index\tprediction\n1\t0\n9\t1\n10\t0\n100\t1\n"
    )


def test_the_files_are_called_what_glues_server_wants(tmp_path):
    wanted = (
        "CoLA.tsv SST-2.tsv MRPC.tsv STS-B.tsv QQP.tsv MNLI-m.tsv MNLI-mm.tsv AX.tsv QNLI.tsv "
        "RTE.tsv WNLI.tsv"
    )
    assert submission_files(GLUE) == wanted.split()
    for task in GLUE.tasks.values():
        for split in task.test:
            content(task.name, split, [0], tmp_path / "new" / "folder")
    found = sorted(file.name for file in (tmp_path / "new" / "folder").iterdir())
    assert found == sorted(wanted.split())
    folder = tmp_path / "new" / "folder"
    assert zip_submission(GLUE, folder, tmp_path / "all.zip") == []


def test_the_archive_holds_the_files_alone_and_those_missing_are_named(tmp_path):
    for task in ("WNLI", "RTE"):
        content(task, "test", [0], tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    missing = zip_submission(GLUE, tmp_path, tmp_path / "submission.zip")
    assert missing == [
        name for name in submission_files(GLUE) if name not in ("WNLI.tsv", "RTE.tsv")
    ]
    with zipfile.ZipFile(tmp_path / "submission.zip") as archive:
        assert archive.namelist() == ["RTE.tsv", "WNLI.tsv"]
        assert archive.read("WNLI.tsv") == b"index\tprediction\n0\t0\n"
        assert archive.testzip() is None


def test_predictions_that_do_not_fit_the_examples_are_refused(tmp_path):
    with pytest.raises(TaskError, match="RTE test: two examples have the same index"):
        content("RTE", "test", [1, 0], tmp_path, [3, 3])
    with pytest.raises(TaskError, match="RTE test: index 'x1' is not a whole number"):
        content("RTE", "test", [1], tmp_path, ["x1"])
    with pytest.raises(ValueError, match="STS-B: the prediction nan is not finite"):
        content("STS-B", "test", [math.nan], tmp_path)
    assert not list(tmp_path.glob("*.tsv"))
