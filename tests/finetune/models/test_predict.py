"""Predictions are the trainer's, in every format, in the order of the file; refusals are a line."""

import csv
import io
import json
from math import exp
from types import SimpleNamespace

import numpy
import pytest
import torch

from finetune.__main__ import main
from finetune.models import prediction_files
from finetune.models import predictor as predictor_module
from finetune.models.kept_model import read_model
from finetune.models.prediction_files import PredictionWriter
from finetune.models.predictor import Predictor
from finetune.tasks.task import TaskError
from pretrain.config.errors import ConfigError
from tests.finetune.models.kept_case import (
    development_texts,
    outputs_in_training,
)

CPU = torch.device("cpu")
ROWS = [f"a list of {n} words" for n in range(7)] + ["", 'a "quoted", comma', "two\nlines", "é"]


@pytest.mark.parametrize("case", ["classes", "numbers"])
def test_outputs_are_those_of_the_trainer(case, request):
    case = request.getfixturevalue(case)
    found = Predictor(read_model(case.folder), CPU).outputs(development_texts(case))
    assert numpy.array_equal(found, outputs_in_training(case))


def test_texts_are_predicted_in_chunks_in_their_order(classes, monkeypatch):
    monkeypatch.setattr(predictor_module, "CHUNK", 5)
    predictor, texts = Predictor(read_model(classes.folder), CPU), development_texts(classes)
    chunks = list(predictor.chunks(texts))
    assert [len(chunk) for chunk in chunks] == [5, 5, 2]
    # Other rows share a batch: sums in another order.
    assert numpy.allclose(numpy.concatenate(chunks), predictor.outputs(texts), atol=1e-6)


def predicted(capsys, *words):
    main(["predict", *map(str, words)])
    return capsys.readouterr()


def expected_classes(case, texts):
    """Return label and probabilities, computed one text at a time and by a plain loop."""
    predictor, labels = Predictor(read_model(case.folder), CPU), ["few", "more", "many, many"]
    for text in texts:
        powers = [exp(float(logit)) for logit in predictor.outputs([text])[0]]
        shares = [power / sum(powers) for power in powers]
        yield labels[shares.index(max(shares))], shares


def write(folder, suffix, rows):
    file = folder / f"texts.{suffix}"
    if suffix == "csv":
        with file.open("w", newline="") as stream:
            csv.writer(stream).writerows(
                [["text", "id"], *([row, n] for n, row in enumerate(rows))]
            )
    elif suffix == "jsonl":
        file.write_text("".join(json.dumps({"id": 1, "text": row}) + "\n" for row in rows))
    elif suffix == "tsv":
        file.write_text("".join(f"{row}\t1\n" for row in ["text", *rows]))
    else:
        file.write_text("".join(f"{row}\n" for row in rows))
    return file


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "tsv", "txt"])
def test_labels_and_probabilities_of_every_format(classes, tmp_path, suffix, capsys):
    rows = ROWS if suffix in ("csv", "jsonl") else [row for row in ROWS if "\n" not in row]
    file = write(tmp_path, suffix, rows)
    expected = list(expected_classes(classes, [(row,) for row in rows]))
    output = predicted(capsys, classes.folder, file).out
    found = list(csv.DictReader(io.StringIO(output)))
    names = [f"probability_{label}" for label in ("few", "more", "many, many")]
    assert list(found[0]) == ["label", *names] and len(found) == len(rows)
    for row, (label, shares) in zip(found, expected, strict=True):
        assert row["label"] == label
        assert [float(row[name]) for name in names] == pytest.approx(shares, abs=1e-6)
    output = predicted(capsys, classes.folder, file, "--output-format", "jsonl").out
    found = [json.loads(line) for line in output.splitlines()]
    for row, (label, shares) in zip(found, expected, strict=True):
        assert row.keys() == {"label", "probabilities"} and row["label"] == label
        assert list(row["probabilities"]) == ["few", "more", "many, many"]
        assert list(row["probabilities"].values()) == pytest.approx(shares, abs=1e-6)


def test_empty_lines_at_the_end_are_texts_too(classes, tmp_path, capsys):
    file = write(tmp_path, "txt", ["a list", "", ""])
    found = list(csv.DictReader(io.StringIO(predicted(capsys, classes.folder, file).out)))
    expected = [label for label, _ in expected_classes(classes, [("a list",), ("",), ("",)])]
    assert [row["label"] for row in found] == expected


def test_numbers_beside_a_large_mean_are_written_with_the_digits_of_their_spread():
    stream = io.StringIO()
    record = SimpleNamespace(labels=(), spread=30.0)
    PredictionWriter(record, stream, "csv").write(numpy.array([1.7e9, 1.7e9 + 12.3456789]))
    assert stream.getvalue().split() == ["value", "1700000000.0", "1700000012.34568"]


def test_numbers_are_in_the_units_of_the_labels(numbers, tmp_path, capsys):
    texts = development_texts(numbers)
    expected = outputs_in_training(numbers).tolist()
    assert min(map(abs, expected)) > 100
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps({"second": b, "first": a}) + "\n" for a, b in texts))
    to = tmp_path / "found.csv"
    assert predicted(capsys, numbers.folder, file, "--to", to).out == ""
    header, *found = to.read_text().splitlines()
    assert header == "value" and list(map(float, found)) == pytest.approx(expected, rel=1e-6)
    predicted(capsys, numbers.folder, file, "--to", tmp_path / "found.jsonl")
    lines = (tmp_path / "found.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"value": float(value)} for value in found]


def test_a_tab_in_a_single_text_is_text(classes, tmp_path, capsys, monkeypatch):
    stdin, rows = tmp_path / "stdin.txt", ["a list\tof the names", "a list"]
    stdin.write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(prediction_files, "STDIN", stdin)
    found = predicted(capsys, classes.folder, "-").out
    assert found == predicted(capsys, classes.folder, stdin).out
    for line, (label, shares) in zip(
        csv.DictReader(io.StringIO(found)),
        expected_classes(classes, [(row,) for row in rows]),
        strict=True,
    ):
        assert line["label"] == label
        assert float(line["probability_few"]) == pytest.approx(shares[0], abs=1e-6)


def test_texts_come_from_stdin_in_lines_or_in_a_format_that_is_named(
    numbers, tmp_path, capsys, monkeypatch
):
    stdin = tmp_path / "stdin"
    monkeypatch.setattr(prediction_files, "STDIN", stdin)
    stdin.write_text("a list\tthe names\nnames\t\n")
    lines = predicted(capsys, numbers.folder).out
    assert len(lines.splitlines()) == 3
    for name, content in (
        ("csv", "second,first\nthe names,a list\n,names\n"),
        ("tsv", "first\tsecond\na list\tthe names\nnames\t\n"),
        ("jsonl", '{"first": "a list", "second": "the names"}\n{"first": "names", "second": ""}\n'),
    ):
        stdin.write_text(content)
        assert predicted(capsys, numbers.folder, "--input-format", name).out == lines


def test_columns_of_other_names_can_be_given(classes, tmp_path, capsys):
    file = write(tmp_path, "csv", ROWS)
    expected = predicted(capsys, classes.folder, file).out
    file.write_text(file.read_text().replace("text,id", "words,id"))
    assert predicted(capsys, classes.folder, file, "--text", "words").out == expected


def test_texts_that_are_cut_are_counted(classes, tmp_path, capsys):
    file = write(tmp_path, "txt", ["names", "the " * 40, "a " * 50])
    errors = predicted(capsys, classes.folder, file).err
    assert errors == "2 of the 3 texts have 24 tokens or more, and are cut to that\n"


def test_long_work_shows_its_progress_and_short_work_does_not(
    classes, tmp_path, capsys, monkeypatch
):
    file = write(tmp_path, "txt", ROWS[:7])
    assert predicted(capsys, classes.folder, file).err == ""
    monkeypatch.setattr(predictor_module, "CHUNK", 3)
    assert "predict: 100%, 7 of 7 rows" in predicted(capsys, classes.folder, file).err


def test_a_file_is_replaced_only_on_request_and_whole(classes, tmp_path, capsys, monkeypatch):
    file, to = write(tmp_path, "txt", ROWS[:3]), tmp_path / "found.csv"
    to.write_text("mine")
    with pytest.raises(ConfigError, match="found.csv exists; choose another --to, or give --rep"):
        predicted(capsys, classes.folder, file, "--to", to)

    def fail(self, texts):
        raise RuntimeError("no power")

    with monkeypatch.context() as broken:
        broken.setattr(Predictor, "outputs", fail)
        with pytest.raises(RuntimeError):
            predicted(capsys, classes.folder, file, "--to", to, "--replace")
    assert to.read_text() == "mine" and len(list(tmp_path.iterdir())) == 2
    predicted(capsys, classes.folder, file, "--to", to, "--replace")
    assert to.read_text().startswith("label,")


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["{folder}", "{file}", "--text", "txet"], TaskError, "no column 'txet'; did you mean tex"),
        (["{folder}", "{file}", "--text", "a", "b"], ConfigError, "trained on 1 column.*, text; "),
        (["{folder}", "absent.csv"], TaskError, "absent.csv cannot be read: No such file"),
        (["{folder}", "texts.docx"], TaskError, "unknown format '.docx'"),
        (["{folder}", "{folder}"], TaskError, "unknown format ''"),
        (["{folder}", "{file}", "--to", "x.xlsx"], ConfigError, "x.xlsx: unknown format; use .csv"),
        (
            ["{folder}", "{file}", "--to", "{file}/x.csv"],
            ConfigError,
            "cannot write .*x.csv: Not",
        ),
        (["{file}", "{file}"], ConfigError, "texts.csv holds no fine-tuned model"),
        (["{folder}", "{empty}"], TaskError, "empty.txt holds no rows; give a file with texts"),
    ],
)
def test_what_is_wrong_is_one_line(classes, tmp_path, capsys, words, error, message):
    places = {"folder": classes.folder, "file": write(tmp_path, "csv", ROWS)}
    places["empty"] = tmp_path / "empty.txt"
    places["empty"].touch()
    with pytest.raises(error, match=message) as caught:
        predicted(capsys, *(word.format(**places) for word in words))
    assert "\n" not in str(caught.value)
