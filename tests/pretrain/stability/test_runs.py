"""Whole runs to which something happens, see trouble_case.py."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from data_prep.shards.format import open_shards
from pretrain.checkpoint.folders import checkpoints_of
from pretrain.checkpoint.format import load_weights
from pretrain.config.recipe import load_settings
from pretrain.data.batches import Place, TrainingBatches
from tests.pretrain.conftest import lines
from tests.pretrain.engine.test_engine import LAUNCHERS
from tests.selection import mostly_slow

from .trouble_case import SCENARIOS, WEIGHT, words

ROOT = Path(__file__).parents[3]
REWOUND = [name for name in SCENARIOS if name.startswith("rewind")]


def run_scenarios(shards, folder, names, launcher="python"):
    finished = subprocess.run(
        [*LAUNCHERS[launcher], str(ROOT / "tests/pretrain/stability/trouble_case.py")]
        + [str(shards), str(folder), *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stderr


@pytest.fixture(scope="module")
def runs(shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trouble")
    (folder / "stderr").write_text(run_scenarios(shards, folder, SCENARIOS))
    return folder


def found(runs, name):
    return json.loads((runs / f"{name}.json").read_text())


def recording(runs, name, file):
    return json.loads((runs / name / "trouble" / file).read_text())


def decisions(runs, name):
    rows = lines(runs / name / "trouble", "decisions.jsonl")
    return [(row["action"], row["first_step"], row["step"], row["checkpoint_step"]) for row in rows]


def rows_of(shards, step):
    """What the engine must be given at a step, by the data set alone."""
    settings = load_settings("tiny_cpu", words(shards))
    batches = TrainingBatches(open_shards(shards), settings, Place(2, rank=0, world_size=1))
    return [batches[index].ids_BS.tolist() for index in range(4 * (step - 1), 4 * step)]


@pytest.mark.parametrize("name", mostly_slow(REWOUND, "each kind of anomaly is a run of its own"))
def test_a_run_that_goes_back_finishes_without_the_rows_of_the_step(runs, shards, name):
    (run,) = found(runs, name)
    assert run["ended"] == "finished"
    assert decisions(runs, name) == [("rewind", 13, 13, 10)]
    steps = [step for step, _ in run["taken"]]
    # The trouble of step 13 is known when step 14 has been taken.
    assert steps == [*range(1, 15), 11, 12, *range(14, 21)]
    for step, rows in run["taken"]:
        assert rows == rows_of(shards, step)
    result = json.loads((runs / name / "result.json").read_text())
    assert result["step"] == 20
    last = lines(runs / name, "metrics.jsonl")[-1]
    assert last["left_out_steps"] == 1 and last["skipped_steps"] == 0


def test_until_the_trouble_the_metrics_are_those_of_the_untroubled_run(runs):
    plain, rewound = (lines(runs / name, "metrics.jsonl") for name in ("plain", "rewind_zero1"))
    assert rewound[:12] == plain[:12]  # bit for bit, though 11 and 12 were taken twice
    assert [row["step"] for row in rewound] == [*range(1, 13), *range(14, 21)]
    rates = [{row["step"]: row["learning_rate"] for row in run} for run in (plain, rewound)]
    assert all(rates[0][step] == rate for step, rate in rates[1].items())  # schedules continue
    assert rewound[12]["loss"] != plain[13]["loss"]


@pytest.mark.parametrize("name", [*REWOUND, "stop", "half_weight"])
def test_the_recording_names_the_weight_that_was_harmed_and_the_rows(runs, name):
    written = recording(runs, name, "step_00000013.json")
    inspection = written["inspection"]
    assert inspection["first_not_finite"] == f"weight {WEIGHT}"
    (rank,) = inspection["ranks"]
    assert rank["not_finite_weights"] == [WEIGHT]
    place = "output of encoder.blocks.1.feedforward.inner "
    assert rank["first_not_finite_forward"].startswith(place)
    assert inspection["weights"] == "those before step 13: no update was made since"
    assert inspection["has_the_losses_of_the_step"]
    assert written["rows"][0]["samples"] == [96, 103]
    assert len(written["rows"][0]["row"]) == 8
    assert [step["step"] for step in written["steps"][0]] == list(range(1, 15))


@pytest.mark.parametrize("name", REWOUND)
def test_the_step_is_looked_at_once_more_with_sound_weights(runs, name):
    again = recording(runs, name, "step_00000013_2.json")
    inspection = again["inspection"]
    assert again["is_replay"] and inspection["first_not_finite"] is None
    if name == "rewind_zero1":
        (rank,) = inspection["ranks"]
        plain = lines(runs / "plain", "metrics.jsonl")[12]
        assert sum(rank["losses"]) / 4 == pytest.approx(plain["loss"], rel=1e-6)
        norm = sum(value**2 for value in inspection["gradient_norms"].values()) ** 0.5
        assert norm == pytest.approx(plain["gradient_norm"], rel=1e-5)


def test_trouble_before_the_first_checkpoint_goes_back_to_the_beginning(runs):
    (run,) = found(runs, "before_a_checkpoint")
    assert run["ended"] == "finished"
    assert decisions(runs, "before_a_checkpoint") == [("rewind", 2, 2, 0)]
    assert [step for step, _ in run["taken"]] == [1, 2, 3, 1, *range(3, 21)]


def test_as_many_steps_as_asked_for_are_left_out(runs):
    (run,) = found(runs, "three_steps")
    assert decisions(runs, "three_steps") == [("rewind", 11, 13, 10)]
    assert [step for step, _ in run["taken"]] == [*range(1, 15), *range(14, 21)]


def test_a_stopped_run_says_what_to_do_and_does_it_when_resumed(runs):
    stopped, resumed = found(runs, "stop")
    for part in (
        "not finite at step 13",
        f"not finite at first: weight {WEIGHT}",
        f"train {runs / 'stop'} --resume --trouble.on_not_finite rewind",
    ):
        assert part in stopped["ended"]
    assert stopped["taken"][-1][0] == 14
    assert resumed["ended"] == "finished"
    assert [step for step, _ in resumed["taken"]] == [11, 12, *range(14, 21)]
    assert decisions(runs, "stop") == [("stop", 13, 13, 10), ("rewind", 13, 13, 10)]
    # What it then was is the run that went back by itself.
    assert lines(runs / "stop", "metrics.jsonl") == lines(runs / "rewind_zero1", "metrics.jsonl")


def test_trouble_that_stays_when_rows_are_left_out_ends_the_run(runs):
    (run,) = found(runs, "persists")
    assert "leaving rows out did not help (2 rewinds to step 10)" in run["ended"]
    assert decisions(runs, "persists") == [
        ("rewind", 13, 13, 10),
        ("rewind", 14, 14, 10),
        ("stop", 15, 15, 10),
    ]


def test_weights_that_are_not_finite_are_not_saved(runs):
    """Harmed after the update of step 15, behind which a checkpoint was due."""
    (run,) = found(runs, "at_a_save")
    assert "not finite at step 15: weights were not finite after it" in run["ended"]
    kept = checkpoints_of(runs / "at_a_save")
    assert [path.name for path in kept] == ["step_00000005", "step_00000010"]
    weights = load_weights(kept[-1])
    assert all(bool(torch.isfinite(weight).all()) for weight in weights.values())


def test_overflows_in_a_row_end_a_run_long_before_the_loss_scale_is_gone(runs):
    assert found(runs, "half")[0]["ended"] == "finished"
    assert not (runs / "half" / "trouble").exists()
    (run,) = found(runs, "half_streak")
    assert "overflow streak at step 17: 6 fp16 steps in a row overflowed" in run["ended"]
    written = recording(runs, "half_streak", "step_00000017.json")
    assert (written["first_step"], written["step"]) == (12, 17)
    scales = [step["loss_scale"] for step in written["steps"][0]]
    assert scales[:11] == [2.0**16] * 11 and scales[-1] >= 2.0**9
    assert written["inspection"]["weights"].endswith("no update was made since")


def test_a_spike_is_recorded_and_the_run_goes_on(runs):
    assert found(runs, "spike")[0]["ended"] == "finished"
    assert [row[:3] for row in decisions(runs, "spike")] == [("record", 60, 61)]
    written = recording(runs, "spike", "step_00000061.json")
    assert written["inspection"]["largest_logit"] > 10
    assert written["inspection"]["weights"].startswith("those after step 62")


def test_a_run_rewinds_before_a_spike(runs):
    """The update of step 60 was the harm, and shows in the loss of step 61."""
    (run,) = found(runs, "spike_rewind")
    assert run["ended"] == "finished"
    assert decisions(runs, "spike_rewind") == [("rewind", 60, 61, 35)]
    losses = [row["loss"] for row in lines(runs / "spike_rewind", "metrics.jsonl")]
    assert max(losses) < 8


@pytest.mark.ranks
@pytest.mark.parametrize("name", mostly_slow(REWOUND[1:], "rewinds of each kind, on two ranks"))
def test_two_ranks_rewind_together(shards, tmp_path, name):
    errors = run_scenarios(shards, tmp_path, [name], "torchrun")
    (run,) = found(tmp_path, name)
    assert run["ended"] == "finished" and decisions(tmp_path, name) == [("rewind", 13, 13, 10)]
    assert errors.count("rewinding to the checkpoint of step 10") == 1
    written = recording(tmp_path, name, "step_00000013.json")
    assert written["inspection"]["first_not_finite"] == f"weight {WEIGHT}"
    assert len(written["inspection"]["ranks"]) == len(written["steps"]) == 2
    assert written["inspection"]["has_the_losses_of_the_step"]
