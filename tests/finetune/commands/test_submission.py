"""Submissions are made of the trials that the protocol of the table selects."""

import json
import zipfile

import pytest

from data_prep.command_line import CommandParser
from finetune.commands.submission import add_arguments, main
from pretrain.config.errors import ConfigError
from pretrain.reports.report_folder import RECORD_FILE
from tests.finetune.report.score_case import write_result


def submit(*words):
    parser = CommandParser()
    add_arguments(parser)
    main(parser.parse_args([str(word) for word in words]))


def predict(folder, split, *predictions):
    rows = [{"identity": str(n), "prediction": found} for n, found in enumerate(predictions)]
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
    submit(sweep, "--to", tmp_path / "out")
    written = (tmp_path / "out" / "RTE.tsv").read_text()
    assert written == "index\tprediction\n0\tnot_entailment\n1\tentailment\n"
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as archive:
        assert archive.read("RTE.tsv").decode() == written
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("RTE")]
    assert line.split() == ["RTE", "0.002", "2", "60.0"]
    assert "the server of GLUE also needs CoLA.tsv" in out


def test_values_and_several_test_sets_are_written(sweep, tmp_path):
    predict(write_result(sweep, "STS-B", 0.5), "test", 2.34567, 7.0)
    folder = write_result(sweep, "MNLI", 0.5)
    for split in ("test_matched", "test_mismatched", "test_ax"):
        predict(folder, split, 2, 0)
    submit(sweep, "--to", tmp_path / "out")
    written = {file.name: file.read_text() for file in (tmp_path / "out").glob("*.tsv")}
    assert set(written) == {"RTE.tsv", "STS-B.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"}
    assert written["STS-B.tsv"].split()[2:] == ["0", "2.346", "1", "5.000"]
    assert written["AX.tsv"].split()[2:] == ["0", "contradiction", "1", "entailment"]


def test_tasks_without_predictions_or_without_a_median_are_named(sweep, tmp_path, capsys):
    write_result(sweep, "CoLA", 0.5)
    write_result(sweep, "SST-2", "diverged")
    write_result(sweep, "QNLI", "failed")
    submit(sweep, "--to", tmp_path / "out")
    out = capsys.readouterr().out
    assert "note: CoLA: " in out
    assert "--predict-test" in out
    for task in ("SST-2", "QNLI"):
        assert f"note: {task}: the median seed diverged, or every seed failed" in out


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
        (["--model", "m"], '[{"identity": 3}]', "predictions_test.json is damaged"),
        (["--model", "other"], None, "no trial of other has predictions: RTE: .*--predict-test"),
    ],
)
def test_what_cannot_be_submitted_is_refused(sweep, tmp_path, words, predictions, message):
    write_result(sweep, "RTE", 0.5, model="other")
    for file in sweep.rglob("predictions_test.json"):
        file.write_text(predictions or file.read_text())
    with pytest.raises(ConfigError, match=message):
        submit(sweep, "--to", tmp_path / "out", *words)
