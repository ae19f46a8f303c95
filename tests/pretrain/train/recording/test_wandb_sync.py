"""W&B shows TensorBoard's files under one name, and no error of it reaches training."""

import sys
import types

import pytest

from pretrain.config.recipe import load_settings
from pretrain.train.recording.progress import Counters
from pretrain.train.recording.run_folder import RunRecord
from tests.pretrain.train.recording.test_tensorboard import METRICS, points

SETTINGS = load_settings("tiny_cpu", ["--loggers", "wandb"])


@pytest.fixture
def calls(monkeypatch):
    """Calls of a module in place of wandb, which raises where it is told to."""
    found = types.SimpleNamespace(init=[], finished=0, fails="")

    def finish():
        found.finished += 1
        if found.fails == "finish":
            raise ConnectionError("no route to host")

    def init(**words):
        if found.fails == "init":
            raise ConnectionError("no route to host")
        found.init.append(words)
        return types.SimpleNamespace(finish=finish)

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    return found


def train_until(folder, step):
    record = RunRecord(folder)
    record.begin(Counters(step=step - 5), {}, SETTINGS)
    record.log({**METRICS, "step": step})
    record.close()


def test_a_resumed_run_goes_on_under_its_id_and_other_runs_have_others(tmp_path, calls):
    for name, step in (("tupe_r", 5), ("tupe_r", 10), ("bert", 5)):
        (tmp_path / name).mkdir(exist_ok=True)
        train_until(tmp_path / name, step)
    first, second, other = calls.init
    assert first == second and first["id"] != other["id"]
    assert (first["name"], first["dir"]) == ("tupe_r", str(tmp_path / "tupe_r"))
    assert first["sync_tensorboard"] and first["resume"] == "allow"
    assert first["config"]["model"]["num_layers"] == 2
    assert calls.finished == 3
    assert [step for step, _ in points(tmp_path / "tupe_r")] == [5, 10]  # what W&B reads


@pytest.mark.parametrize("fails", ["init", "finish"])
def test_an_error_is_one_warning(tmp_path, calls, capsys, fails):
    calls.fails = fails
    train_until(tmp_path, 5)
    assert capsys.readouterr().err == "warning: wandb: no route to host; training goes on\n"
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1


def test_a_missing_package_is_one_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    train_until(tmp_path, 5)
    assert capsys.readouterr().err.startswith("warning: wandb: import of wandb halted")
