"""Submissions are made of the trials that the protocol of the table selects."""

import json
import zipfile

import pytest

from data_prep.command_line import CommandParser
from data_prep.files.errors import UserError
from finetune.commands.submission import add_arguments, main
from pretrain.reports.report_folder import RECORD_FILE
from tests.finetune.report.score_case import write_result


def submit(*words):
    parser = CommandParser()
    add_arguments(parser)
    main(parser.parse_args([str(word) for word in words]))


def predict(folder, split, *predictions, indices=None):
    numbers = range(len(predictions)) if indices is None else indices
    pairs = zip(numbers, predictions, strict=True)
    rows = [{"identity": str(n), "prediction": found} for n, found in pairs]
    (folder / f"predictions_{split}.json").write_text(json.dumps(rows))


@pytest.fixture
def sweep(tmp_path):
    """RTE at two rates, the median of the better one is seed 2, which alone predicts a 1."""
    for rate, scores in {1e-3: (0.5, 0.5, 0.5), 2e-3: (0.9, 0.3, 0.6, "diverged", 0.7)}.items():
        for seed, score in enumerate(scores):
            folder = write_result(tmp_path / "sweep", "RTE", score, rate=rate, seed=seed)
            if score != "diverged":
                predict(folder, "test", int((rate, seed) == (2e-3, 2)), 0)
    return tmp_path / "sweep"


def test_the_seed_with_the_median_score_at_the_best_rate_is_submitted(sweep, tmp_path, capsys):
    write_result(sweep, "CoLA", 0.5)
    write_result(sweep, "SST-2", "diverged")
    submit(sweep, "--to", tmp_path / "out")
    written = (tmp_path / "out" / "RTE.tsv").read_text()
    assert written == "index\tprediction\n0\tnot_entailment\n1\tentailment\n"
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as archive:
        assert archive.read("RTE.tsv").decode() == written
    first, note, _ = capsys.readouterr().out.splitlines()
    assert first == f"RTE.tsv: {sweep}/RTE/m/lr_0.002/seed_2"
    names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm AX QNLI WNLI"
    missing = ", ".join(f"{name}.tsv" for name in names.split())
    assert note == f"note: the server of GLUE also needs {missing}: of trials with --predict-test"


@pytest.mark.parametrize(
    ("task", "split", "predictions", "file"),
    [
        ("CoLA", "test", {1: "1", 0: "0"}, "CoLA"),
        ("MNLI", "test_ax", {0: "entailment", 1: "neutral", 2: "contradiction"}, "AX"),
        ("MNLI", "test_mismatched", {0: "entailment"}, "MNLI-mm"),
        # Three decimals between 0 and 5.
        ("STS-B", "test", {2.71828: "2.718", -0.3: "0.000", 5.4: "5.000"}, "STS-B"),
    ],
)
def test_predictions_are_written_as_glue_spells_them_in_the_order_of_their_indices(
    tmp_path, task, split, predictions, file
):
    indices = [10, 9, 100][: len(predictions)]
    folder = write_result(tmp_path / "sweep", task, 0.5)
    predict(folder, split, *predictions, indices=indices)
    submit(tmp_path / "sweep", "--to", tmp_path / "out")
    lines = (tmp_path / "out" / f"{file}.tsv").read_text().splitlines()[1:]
    expected = sorted(zip(indices, predictions.values(), strict=True))
    assert lines == [f"{index}\t{word}" for index, word in expected]


def test_a_submission_holds_nothing_of_another_one_in_the_same_folder(sweep, tmp_path):
    predict(write_result(sweep, "CoLA", 0.5), "test", 1)
    predict(write_result(sweep, "RTE", 0.5, model="other"), "test", 0)
    submit(sweep, "--to", tmp_path / "out", "--model", "m")
    submit(sweep, "--to", tmp_path / "out", "--model", "other")
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as archive:
        assert archive.namelist() == ["RTE.tsv"]
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"RTE.tsv", "submission.zip", RECORD_FILE}


@pytest.mark.parametrize(
    ("words", "predictions", "message"),
    [
        ([], None, "choose --model of m, other"),
        (["--model", "othr"], None, r"'othr'.*did you mean other?"),
        (["--model", "m"], [("3", 7)], "predictions_test.json is damaged: RTE has other labels"),
        (["--model", "m"], [(3, 0)], "predictions_test.json is damaged: 0.identity"),
        (["--model", "m"], [("3", float("nan"))], "predictions_test.json is damaged: 0.prediction"),
        (["--model", "m"], [("3", 1), ("3", 0)], "an index .* no whole number, or occurs twice"),
        (["--model", "m"], [("x1", 1)], "an index .* is no whole number"),
        (["--model", "other"], None, "no chosen trial of other has predictions; .*--predict-test"),
    ],
)
def test_what_cannot_be_submitted_is_refused(sweep, tmp_path, words, predictions, message):
    write_result(sweep, "RTE", 0.5, model="other")
    rows = [{"identity": index, "prediction": found} for index, found in predictions or []]
    for file in sweep.rglob("predictions_test.json"):
        file.write_text(json.dumps(rows) if rows else file.read_text())
    with pytest.raises(UserError, match=message):
        submit(sweep, "--to", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()
