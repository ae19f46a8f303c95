"""Metrics reach the trackers whatever happens to the run, and no tracker disturbs it.

Modules of a few lines stand for W&B and MLflow; where these are installed, they are tried too.
"""

import importlib.util
import json
import os
import signal
import sys
import types

import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import LOGGERS, as_json
from pretrain.train.recording import tracker_process
from pretrain.train.recording.run_folder import RunRecord
from pretrain.train.recording.scalars import Scalars
from pretrain.train.recording.tracker_process import Sender, TrackerProcesses
from pretrain.train.recording.trackers import WandbRun, refuse_missing_loggers
from tests.pretrain.train.recording.test_tensorboard import METRICS, ONE_RANK

FAKE_WANDB = """
import json, os, sys, time

FILE = os.environ["FAKE_CALLS"]
FAILS = os.environ.get("FAKE_FAILS")

def note(*call):
    if FAILS == call[0]:
        raise ConnectionError("no route to host")
    if FAILS == "hangs":
        time.sleep(100)
    with open(FILE, "a") as file:
        file.write(json.dumps(call) + "\\n")

class Config:
    def update(self, values, allow_val_change):
        note("config", values["model"]["num_layers"])

class Run:
    step = 0
    config = Config()
    def define_metric(self, name, step_metric=None):
        pass
    def log(self, values, step):
        note("log", step, sorted(values))
    def finish(self, exit_code):
        note("finish", exit_code)

def Settings(**_):
    return None

def init(*, project, name, id, resume, dir, settings):
    note("init", project, name, id, resume)
    return Run()
"""


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Wait longer for a process than a user would: the machine may be busy."""
    monkeypatch.setattr(tracker_process, "LAST_LINES_SECONDS", 200.0)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a run folder whose tracker is a fake, and what the fake was called with."""
    modules, folder, calls = tmp_path / "modules", tmp_path / "tupe_r", tmp_path / "calls"
    modules.mkdir()
    folder.mkdir()
    (modules / "wandb.py").write_text(FAKE_WANDB)
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("FAKE_CALLS", str(calls))
    settings = load_settings("tiny_cpu", ["--loggers", "wandb", "--log_project", "bert"])
    (folder / "run.json").write_text(as_json(settings))

    def read():
        return [json.loads(line) for line in calls.read_text().splitlines()]

    return folder, settings, read


def metrics(step):
    return {**METRICS, "step": step}


def evaluation(step):
    return {"step": step, "loss": 6.0, "predictions": 320}


def test_each_line_is_sent_once_and_a_resumed_run_keeps_its_name(run):
    folder, settings, read = run
    first = RunRecord(folder)
    first.begin(0, ONE_RANK, settings)
    first.log(metrics(5))
    first.log(metrics(10))
    first.log_evaluation(evaluation(10))
    first.close()
    second = RunRecord(folder)
    second.begin(10, ONE_RANK, settings)
    second.log(metrics(15))
    second.finish({"step": 15})
    calls = read()
    assert [call[0] for call in calls] == [
        *("init", "config", "log", "log", "finish"),
        *("init", "config", "log", "finish"),
    ]
    (_, project, name, run_id, resume), *_ = calls
    assert (project, name, resume) == ("bert", "tupe_r", "allow")
    assert calls[5] == calls[0] and run_id
    logged = [call for call in calls if call[0] == "log"]
    assert [call[1] for call in logged] == [5, 10, 15]
    assert "train/loss" in logged[0][2] and "held_out/loss" not in logged[0][2]
    assert {"train/loss", "held_out/loss", "step"} <= set(logged[1][2])
    assert [call[1] for call in calls if call[0] == "finish"] == [1, 0]


@pytest.mark.parametrize(
    ("fails", "sent"), [("init", "this launch sends nothing"), ("log", "it is tried again")]
)
def test_an_error_is_one_warning_and_the_next_launch_sends_what_is_missing(
    fails, sent, run, monkeypatch, capfd
):
    folder, settings, read = run
    for step in (5, 10):
        monkeypatch.setenv("FAKE_FAILS", fails if step == 5 else "")
        record = RunRecord(folder)
        record.begin(step - 5, ONE_RANK, settings)
        record.log(metrics(step))
        record.close()
    assert [call[1] for call in read() if call[0] == "log"] == [5, 10]
    printed = capfd.readouterr().err
    assert printed.count("warning") == 1
    assert f"warning: wandb: no route to host; {sent}" in printed


def test_a_tracker_that_hangs_is_left_behind(run, monkeypatch, capfd):
    folder, settings, _ = run
    monkeypatch.setenv("FAKE_FAILS", "hangs")
    monkeypatch.setattr(tracker_process, "LAST_LINES_SECONDS", 0.2)
    (folder / "launches.jsonl").write_text(json.dumps(ONE_RANK) + "\n")
    processes = TrackerProcesses(folder, settings)
    (name, process), *_ = processes._running
    try:
        processes.close()
        assert name == "wandb" and process.poll() is None
        assert f"process {process.pid} goes on sending them" in capfd.readouterr().err
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


class Collector:
    id = "x"

    def __init__(self):
        self.steps = []

    def send(self, step, scalars):
        self.steps.append((step, scalars["train/loss"]))


def test_a_file_of_the_user_is_not_imported_in_place_of_a_module(run, tmp_path, monkeypatch):
    folder, settings, read = run
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random.py").write_text("import sys; sys.exit(9)\n")
    record = RunRecord(folder)
    record.begin(0, ONE_RANK, settings)
    record.log(metrics(5))
    record.close()
    assert [call[1] for call in read() if call[0] == "log"] == [5]


def test_after_a_rewind_the_new_lines_are_sent(run):
    folder, settings, _ = run

    def write(**losses):
        lines = ({**METRICS, "step": int(s[1:]), "loss": loss} for s, loss in losses.items())
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    tracker = Collector()
    sender = Sender(folder, "wandb", tracker, Scalars(settings, ONE_RANK))
    write(s5=3.0, s10=2.0, s15=9.0)
    sender.send_new()
    write(s5=3.0, s10=2.5, s15=2.0, s20=1.0)
    sender.send_new()
    sender.send_new()
    assert tracker.steps == [(5, 3.0), (10, 2.0), (15, 9.0), (10, 2.5), (15, 2.0), (20, 1.0)]


def test_rows_of_wandb_never_fall(tmp_path, monkeypatch):
    rows = []
    made = types.SimpleNamespace(
        step=0,
        config={},
        define_metric=lambda *_, **__: None,
        log=lambda values, step: rows.append((values["step"], step)),
    )
    made.config = types.SimpleNamespace(update=lambda *_, **__: None)
    fake = types.SimpleNamespace(init=lambda **_: made, Settings=lambda **_: None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    tracker = WandbRun(tmp_path, load_settings("tiny_cpu"), None)
    for step in (5, 10, 10, 5, 10, 15, 20):
        tracker.send(step, {})
    assert rows == [(5, 5), (10, 10), (10, 10), (5, 11), (10, 12), (15, 15), (20, 20)]


def test_a_missing_package_is_one_line_with_the_command(tmp_path, monkeypatch):
    settings = load_settings("tiny_cpu", ["--loggers", "tensorboard,wandb"])
    monkeypatch.setitem(LOGGERS, "wandb", "absent_package")
    (tmp_path / "absent_package").mkdir()  # W&B leaves such folders
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as refused:
        refuse_missing_loggers(settings)
    assert "\n" not in str(refused.value)
    assert "wandb is not installed; install it with python -m pip install absent_package" in str(
        refused.value
    )
    (tmp_path / "absent_package" / "__init__.py").touch()
    importlib.invalidate_caches()
    refuse_missing_loggers(settings)


@pytest.mark.skipif(bool(importlib.util.find_spec("wandb")), reason="it is installed")
def test_a_start_without_the_package_ends_before_any_work(command, tmp_path):
    status, _, errors = command.run(
        ["train", "tiny_cpu", "--loggers", "wandb", "--run-folder", str(tmp_path / "run")]
    )
    assert status == 1 and errors.count("\n") == 1
    assert "wandb is not installed" in errors
    assert not (tmp_path / "run").exists()


def train_twice(folder, settings):
    for step in (5, 10):
        record = RunRecord(folder)
        record.begin(step - 5, ONE_RANK, settings)
        record.log(metrics(step))
        record.log_evaluation(evaluation(step))
        record.finish({}) if step == 10 else record.close()


def test_mlflow_holds_the_curves_of_a_resumed_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    settings = load_settings("tiny_cpu", ["--loggers", "mlflow", "--log_project", "bert"])
    (tmp_path / "run.json").write_text(as_json(settings))
    train_twice(tmp_path, settings)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("bert")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED" and found.data.params["model.num_layers"] == "2"
    for name in ("train/loss", "held_out/loss"):
        history = client.get_metric_history(found.info.run_id, name)
        assert [point.step for point in history] == [5, 10]


def test_wandb_records_a_resumed_run_offline_under_one_id(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    settings = load_settings("tiny_cpu", ["--loggers", "wandb", "--log_project", "bert"])
    (tmp_path / "run.json").write_text(as_json(settings))
    train_twice(tmp_path, settings)
    state = json.loads((tmp_path / "trackers" / "wandb.json").read_text())
    assert state["lines"] == {"metrics": 2, "evals": 2}
    segments = list((tmp_path / "wandb").glob("offline-run-*"))
    assert {folder.name.rpartition("-")[2] for folder in segments} == {state["id"]}
    assert all(list(folder.glob("*.wandb")) for folder in segments)
