"""Predictions are the trainer's, in every format, in the order of the file; refusals are a line."""

import csv
import io
import json
from math import exp

import pytest
import torch

from data_prep.files.errors import UserError
from finetune.commands import predict as command
from finetune.models import kept_model
from finetune.models.kept_model import Predictor, read_model
from pretrain.config.errors import ConfigError
from tests.finetune.models.kept_case import development_texts, outputs_in_training
from tupelo.__main__ import main

CPU = torch.device("cpu")
ROWS = ["a list of words", 'a "quoted", comma', "two\nlines", "a list\tof the names", "é", "", ""]


def predicted(capsys, *words):
    main(["finetune", "predict", *map(str, words)])
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
                [["text", "prediction", "id"], *([row, "?", n] for n, row in enumerate(rows))]
            )
    else:
        file.write_text("".join(f"{row}\n" for row in rows))
    return file


@pytest.mark.parametrize("suffix", ["csv", "txt"])
def test_labels_and_probabilities_of_every_format(classes, tmp_path, suffix, capsys):
    rows = [row for row in ROWS if suffix == "csv" or "\n" not in row]
    file = write(tmp_path, suffix, rows)
    expected = list(expected_classes(classes, [(row,) for row in rows]))
    output = predicted(capsys, classes.folder, file).out
    found = list(csv.DictReader(io.StringIO(output)))
    names = [f"probability_{label}" for label in ("few", "more", "many, many")]
    columns = ["text", *["id"] * (suffix == "csv"), "prediction", *names]
    assert list(found[0]) == columns and [row["text"] for row in found] == rows
    assert suffix == "txt" or [row["id"] for row in found] == [*map(str, range(len(rows)))]
    for row, (label, shares) in zip(found, expected, strict=True):
        assert row["prediction"] == label
        assert [float(row[name]) for name in names] == pytest.approx(shares, abs=1e-6)


def test_numbers_are_in_the_units_of_the_labels(numbers, tmp_path, capsys):
    texts = development_texts(numbers)
    expected = outputs_in_training(numbers).tolist()
    assert min(map(abs, expected)) > 100
    file = tmp_path / "pairs.jsonl"
    rows = [{"second": b, "first": a, "marks": [a, 1]} for a, b in texts]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    to = tmp_path / "found.csv"
    assert predicted(capsys, numbers.folder, file, "--to", to).out == ""
    found = list(csv.DictReader(to.open(newline="")))
    assert [json.loads(row["marks"]) for row in found] == [row["marks"] for row in rows]
    assert [float(row["prediction"]) for row in found] == pytest.approx(expected, rel=1e-6)


def test_texts_come_from_stdin_in_lines(numbers, tmp_path, capsys, monkeypatch):
    stdin, file = tmp_path / "stdin", tmp_path / "texts.csv"
    monkeypatch.setattr(command, "STDIN", stdin)
    stdin.write_text("a list\tthe names\nnames\t\n")
    lines = predicted(capsys, numbers.folder).out
    assert len(lines.splitlines()) == 3
    file.write_text("first,second\na list,the names\nnames,\n")
    assert predicted(capsys, numbers.folder, file).out == lines


def test_no_file_is_replaced_and_none_is_written_in_part(classes, tmp_path, capsys, monkeypatch):
    file, to = write(tmp_path, "txt", ROWS[:3]), tmp_path / "found.csv"
    to.write_text("mine")
    with pytest.raises(ConfigError, match="found.csv exists; choose another --to, or remove it"):
        predicted(capsys, classes.folder, file, "--to", to)
    to.unlink()

    def fail(self, texts):
        raise RuntimeError("no power")

    monkeypatch.setattr(Predictor, "outputs", fail)
    with pytest.raises(RuntimeError):
        predicted(capsys, classes.folder, file, "--to", to)
    assert list(tmp_path.iterdir()) == [file]


def test_half_an_emoji_in_another_column_is_written_as_its_number(classes, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a list", "user": "\\ud83d"}\n')
    rows, to = (str(tmp_path / name) for name in ("a.jsonl", "a.csv"))
    main(["finetune", "predict", str(classes.folder), rows, "--to", to])
    assert "\\ud83d," in (tmp_path / "a.csv").read_text()


def test_texts_that_are_cut_are_counted_and_long_work_shows_its_progress(
    classes, tmp_path, capsys, monkeypatch
):
    file = write(tmp_path, "txt", ["names", "the " * 40, "a " * 50])
    cut = "2 of the 3 texts fill 24 tokens; text beyond is cut off\n"
    assert predicted(capsys, classes.folder, file).err == cut
    monkeypatch.setattr(kept_model, "CHUNK", 2)
    assert "predict: 100% 3.00/3.00 [" in predicted(capsys, classes.folder, file).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{folder} other.csv", "no column 'text'; did you mean txet"),
        ("{folder} absent.csv", "absent.csv cannot be read: No such file"),
        ("{folder} {folder}", "unknown format ''"),
        ("{folder} piped.txt", "its first line names a column; give a table as a .csv or .tsv"),
        ("{folder} {file} --to x.xlsx", "x.xlsx: predictions are CSV"),
        ("{folder} {file} --to {file}/x.csv", "is no folder; make it, or choose another --to"),
        ("{file} {file}", "texts.csv holds no fine-tuned model"),
    ],
)
def test_what_is_wrong_is_one_line(classes, tmp_path, capsys, monkeypatch, words, message):
    places = {"folder": classes.folder, "file": write(tmp_path, "csv", ROWS)}
    (tmp_path / "other.csv").write_text("txet\na\n")
    (tmp_path / "piped.txt").write_text("id,text\n1,a list\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        predicted(capsys, *words.format(**places).split())
    assert "\n" not in str(caught.value)
