"""Records of finished runs: another machine goes on from them, and a comparison reads them."""

import re
import shutil
from pathlib import Path

import pytest

from pretrain.compare.convergence import compare
from pretrain.compare.runs import read_run
from pretrain.compare.tables import report_of
from pretrain.sweeps.plan import SweepRun
from pretrain.sweeps.records import keep
from tests.pretrain.commands.test_compare import write_run
from tests.pretrain.sweeps.conftest import trained

ARMS = ("bert_a", "tupe_r")


def test_a_comparison_of_records_is_that_of_the_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = Path("runs/x")
    arms = {"one": (7.0, 6.0, 5.0), "two": (7.0, 5.0, 4.0)}
    runs = []
    for name, losses in arms.items():
        words = ("--name", name, "--learning_rate.peak", f"{losses[-1]}")
        runs.append(write_run(sweep / f"{name}-seed0", *words, losses=losses))
        (runs[-1] / "checkpoints").mkdir()
    keep(Path("kept"), sweep, [SweepRun(None, 0, run) for run in runs])
    names = {"run.json", "launches.jsonl", "evals.jsonl", "metrics.jsonl", "result.json"}
    for run in runs:
        assert {entry.name for entry in Path("kept", run.name).iterdir()} == names
    ours = [read_run(Path("kept") / f"{name}-seed0") for name in arms]
    theirs = [read_run(sweep / f"{name}-seed0") for name in arms]
    first, second = (report_of(compare(runs)).as_text(80) for runs in (ours, theirs))
    assert first == second


def test_records_name_no_place_of_the_machine_and_compare_with_runs_elsewhere(
    tmp_path, monkeypatch
):
    """Shards at another place are no other setting: the checksum of what was read counts."""
    monkeypatch.chdir(tmp_path)
    sweep, elsewhere = Path("runs/x"), Path("/home/ann/data/shards-1")
    command = ["/opt/tupelo/pretrain/__main__.py", "train", f"{tmp_path}/mine.toml", "a/b"]
    source = f"text files in {elsewhere}, 4 MB"
    words = ("--name", "one", "--seed", "1", "--data.shards", str(elsewhere))
    words += ("--data.corpus", f"{elsewhere.parent}/text.txt")
    folder = write_run(sweep / "one-seed1", *words, command=command, source=source)
    keep(Path("kept"), sweep, [SweepRun(None, 1, folder)])
    for file in Path("kept").rglob("*.json*"):
        assert not {"ann", "opt", str(tmp_path)} & {*re.split(r'[/"]', file.read_text())}
        assert str(tmp_path) not in file.read_text()
    record = read_run(Path("kept/one-seed1"))
    (launch,) = record.launches
    assert launch["command"] == ["__main__.py", "train", "mine.toml", "a/b"]
    assert launch["source"] == "text files in shards-1, 4 MB"
    words = ("--name", "one", "--data.shards", "shards", "--data.corpus", "/srv/text.txt")
    here = write_run(tmp_path / "here", *words, "--seed", "2")
    assert [len(arm.runs) for arm in compare([record, read_run(here)]).arms] == [2]


def test_another_machine_trains_what_is_not_recorded(here, run, monkeypatch, tmp_path):
    monkeypatch.setenv("STUB_FAILS", "* train tupe_r *seed1*")
    kept = tmp_path / "kept"
    words = (*ARMS, "--seeds", "2", "--records", kept, "--steps", "7")
    with pytest.raises(SystemExit):
        run(*words, "--name", "x")
    monkeypatch.delenv("STUB_FAILS")
    assert sorted(path.name for path in kept.iterdir()) == [
        "bert_a-seed0",
        "bert_a-seed1",
        "tupe_r-seed0",
    ]
    shutil.rmtree("runs")
    here.log.unlink()
    run(*words, "--name", "other")
    assert trained(here) == [("tupe_r", "runs/other/tupe_r-seed1", "1", False)]
    assert len(here.compared[0][1:-2]) == 4 and (kept / "tupe_r-seed1/result.json").exists()
