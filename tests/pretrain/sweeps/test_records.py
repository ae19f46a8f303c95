"""Records of finished runs: another machine goes on from them, and a comparison reads them."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pretrain.__main__ import main
from pretrain.config.errors import ConfigError
from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.run_files import DECISIONS
from pretrain.reports.compare.runs import read_run
from pretrain.reports.compare.tables import report_of
from pretrain.sweeps.plan import SweepRun
from pretrain.sweeps.records import bring, keep
from tests.pretrain.commands.test_compare import write_run
from tests.pretrain.sweeps.conftest import SIZES, trained
from tests.pretrain.sweeps.test_spec import sweep as sweep_of

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


def test_a_killed_sweep_leaves_records_of_what_is_finished_and_repeats_no_run(
    here, shards, tmp_path
):
    words = ["sweep", *ARMS, "--name", "x", "--data.shards", str(shards), *SIZES]
    words += ["--records", str(tmp_path / "kept")]
    process = here.start_waiting(*words, STUB_WAITS="runs/x/tupe_r-seed0")
    for killed in (process, *psutil.Process(process.pid).children()):
        killed.kill()
    process.communicate(timeout=60)
    assert [file.parent.name for file in (tmp_path / "kept").rglob("result.json")] == [
        "bert_a-seed0"
    ]
    here.log.unlink()
    main(words)
    assert [folder for _, folder, *_ in trained(here)] == ["runs/x/tupe_r-seed0"]


def test_only_ended_records_of_the_same_settings_are_brought_and_none_over_what_was_begun(tmp_path):
    """One of other settings is refused by name before anything of it is copied."""
    records, folder = tmp_path / "kept", tmp_path / "x"
    begun, diverged, longer = (
        replace(run, seed=seed, folder=folder / f"tiny_cpu-seed{seed}")
        for ((run,),) in [sweep_of("tiny_cpu").runs(folder)]
        for seed in (1, 2, 3)
    )
    for run in (begun, diverged):
        write_run(records / run.folder.name, "--seed", str(run.seed), finished=run is begun)
    (records / diverged.folder.name / "trouble").mkdir()
    (records / diverged.folder.name / DECISIONS).write_text('{"action": "stop"}\n')
    begun.folder.mkdir(parents=True)
    (begun.folder / "run.json").write_text("{}")
    bring(records, folder, [begun, diverged])
    assert not begun.is_finished and diverged.is_finished and diverged.has_begun
    write_run(records / longer.folder.name, "--seed", "3", "--steps", "9999")
    with pytest.raises(ConfigError, match="kept/tiny_cpu-seed3 was begun with steps=9999"):
        bring(records, folder, [longer])
    assert not longer.folder.exists()
