"""Curves and comparisons of the API, against the files of the runs."""

import json

import pandas
import pytest

import tupelo


def test_curves_are_the_lines_of_the_files(run):
    for table, name in zip(tupelo.curves(run), ("metrics.jsonl", "evals.jsonl"), strict=True):
        assert isinstance(table, pandas.DataFrame) and table.index.name == "step"
        lines = [json.loads(line) for line in (run / name).read_text().splitlines()]
        assert table.index.tolist() == [line.pop("step") for line in lines]
        for line, (_, row) in zip(lines, table.iterrows(), strict=True):
            left = dict(row)
            for column, value in line.items():
                if isinstance(value, list):
                    value = {f"layer_{layer:02d}": part for layer, part in enumerate(value, 1)}
                parts = value.items() if isinstance(value, dict) else None
                names = {column: value} if parts is None else {f"{column}/{k}": v for k, v in parts}
                for part, expected in names.items():
                    assert left.pop(part) == expected, part
            assert left == {}


def test_a_run_that_has_just_begun_has_curves(run, tmp_path):
    (tmp_path / "run.json").write_text((run / "run.json").read_text())
    assert [len(table) for table in tupelo.curves(tmp_path)] == [0, 0]
    first, second, *_ = (run / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "metrics.jsonl").write_text(f"{first}\n{second[:40]}")  # not written to its end
    assert tupelo.curves(tmp_path).metrics.index.tolist() == [1]
    (tmp_path / "run.json").unlink()
    with pytest.raises(ValueError, match="is not a run folder: it has no run.json"):
        tupelo.curves(tmp_path)
