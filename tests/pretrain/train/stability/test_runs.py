"""Whole runs to which something happens, see trouble_case.py."""

import json

import pytest
import torch

from data_prep.shards.format import open_shards
from pretrain.checkpoint.folders import checkpoints_of
from pretrain.checkpoint.format import load_weights
from pretrain.config.recipe import load_settings
from pretrain.data.batches import Place, TrainingBatches
from tests.forked_command import run_module
from tests.pretrain.conftest import lines
from tests.pretrain.data.test_batches import rows_read
from tests.selection import mostly_slow

from .trouble_case import REWINDS, SCENARIOS, words

FAULTY = "tests.pretrain.train.stability.run_with_fault"


def run_scenarios(shards, folder, names, ranks=1):
    words = [shards, folder, *names]
    status, _, errors = run_module("tests.pretrain.train.stability.trouble_case", words, ranks)
    assert status == 0, errors[-3000:]
    return errors


@pytest.fixture(scope="module")
def runs(shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trouble")
    (folder / "stderr").write_text(run_scenarios(shards, folder, SCENARIOS))
    return folder


def found(runs, name):
    return json.loads((runs / f"{name}.json").read_text())


def decisions(runs, name):
    rows = lines(runs / name / "trouble", "decisions.jsonl")
    return [(row["action"], row["first_step"], row["step"]) for row in rows]


def test_a_run_that_goes_back_finishes_without_the_rows_of_the_step(runs, shards):
    (run,) = found(runs, "rewind")
    assert run["ended"] == "finished"
    assert decisions(runs, "rewind") == [("rewind", 13, 13)]
    steps = [step for step, _ in run["taken"]]
    # The trouble of step 13 is known when step 14 has been taken.
    assert steps == [*range(1, 15), 11, 12, *range(14, 21)]
    settings = load_settings("tiny_cpu", words(shards))
    batches = TrainingBatches(open_shards(shards), settings, Place(4, rank=0, world_size=1))
    for step, rows in run["taken"]:  # what the engine must be given, by the data set alone
        assert rows == [batches[n].ids_BS.tolist() for n in range(2 * (step - 1), 2 * step)]
    result = json.loads((runs / "rewind" / "result.json").read_text())
    assert result["step"] == 20
    last = lines(runs / "rewind", "metrics.jsonl")[-1]
    assert last["left_out_steps"] == 1 and last["skipped_steps"] == 0


def test_until_the_trouble_the_metrics_are_those_of_the_untroubled_run(runs):
    plain, rewound = (lines(runs / name, "metrics.jsonl") for name in ("plain", "rewind"))
    assert rewound[:12] == plain[:12]  # bit for bit, though 11 and 12 were taken twice
    assert [row["step"] for row in rewound] == [*range(1, 13), *range(14, 21)]
    rates = [{row["step"]: row["learning_rate"] for row in run} for run in (plain, rewound)]
    assert all(rates[0][step] == rate for step, rate in rates[1].items())  # schedules continue
    assert rewound[12]["loss"] != plain[13]["loss"]


def test_trouble_before_the_first_checkpoint_goes_back_to_the_beginning(runs):
    (run,) = found(runs, "before_a_checkpoint")
    assert run["ended"] == "finished"
    assert decisions(runs, "before_a_checkpoint") == [("rewind", 2, 2)]
    assert [step for step, _ in run["taken"]] == [1, 2, 3, 1, *range(3, 21)]


def test_a_stopped_run_names_its_sequences_and_leaves_them_out_when_resumed(runs, shards):
    stopped, resumed = found(runs, "stop")
    settings = load_settings("tiny_cpu", words(shards))
    sequences = rows_read(open_shards(shards), settings, 2, 1, range(4 * 12, 4 * 13))
    assert stopped["ended"] == (
        "step 13: the loss of 2 micro-batches was not finite; sequences: "
        f"{', '.join(map(str, sequences))}; to train without these sequences: tupelo train "
        f"{runs / 'stop'} --resume --trouble.on_not_finite rewind (no checkpoint holds it)"
    )
    assert lines(runs / "stop" / "trouble", "decisions.jsonl")[0]["sequences"] == sequences
    assert stopped["taken"][-1][0] == 14
    assert resumed["ended"] == "finished"
    assert [step for step, _ in resumed["taken"]] == [11, 12, 13, 14, 11, 12, *range(14, 21)]
    assert decisions(runs, "stop") == [("stop", 13, 13), ("rewind", 13, 13)]
    # What it then was is the run that went back by itself.
    assert lines(runs / "stop", "metrics.jsonl") == lines(runs / "rewind", "metrics.jsonl")


def test_a_step_that_is_skipped_changes_no_weights(runs):
    (run,) = found(runs, "skip")
    assert run["ended"] == "finished"
    assert [step for step, _ in run["taken"]] == list(range(1, 21))
    assert decisions(runs, "skip") == [("skip", 13, 13)]
    plain, skipped = (lines(runs / name, "metrics.jsonl") for name in ("plain", "skip"))
    assert skipped[:12] == plain[:12] and skipped[-1]["skipped_steps"] == 1
    assert skipped[13]["loss"] != plain[13]["loss"]


def test_trouble_that_stays_when_sequences_are_left_out_ends_the_run(runs):
    (run,) = found(runs, "persists")
    assert "did not help (2 rewinds to the checkpoint of step 10)" in run["ended"]
    assert decisions(runs, "persists") == [("rewind", 13, 13), ("rewind", 14, 14), ("stop", 15, 15)]


def test_weights_that_are_not_finite_are_not_saved(runs):
    """Harmed after the update of step 15, behind which a checkpoint was due."""
    (run,) = found(runs, "at_a_save")
    assert "step 15: weights were not finite after it" in run["ended"]
    kept = checkpoints_of(runs / "at_a_save")
    assert [path.name for path in kept] == ["step_00000005", "step_00000010"]
    weights = load_weights(kept[-1])
    assert all(bool(torch.isfinite(weight).all()) for weight in weights.values())


def test_a_run_whose_folder_is_renamed_ends_with_an_error_and_makes_no_other(runs):
    (run,) = found(runs, "renamed")
    message = f"{runs / 'renamed'} was renamed or removed while the run trained in it; give it back"
    assert run["ended"].startswith(message) and run["taken"][-1][0] == 15
    assert not (runs / "renamed").exists()
    assert checkpoints_of(runs / "elsewhere")


def test_overflows_in_a_row_end_a_run_long_before_the_loss_scale_is_gone(runs):
    (run,) = found(runs, "half_streak")
    assert "step 17: 6 steps in a row had no update; the loss scale is" in run["ended"]
    assert "; sequences of steps 16 to 17: " in run["ended"]  # after the checkpoint of 15
    assert decisions(runs, "half_streak")[-1] == ("stop", 12, 17)


def test_a_run_rewinds_before_a_spike(runs):
    """The update of step 18 was the harm, and shows in the loss of step 19."""
    (run,) = found(runs, "spike_rewind")
    assert run["ended"] == "finished"
    assert decisions(runs, "spike_rewind") == [("rewind", 18, 19)]
    assert "rewinding to the checkpoint of step 15" in (runs / "stderr").read_text()
    losses = [row["loss"] for row in lines(runs / "spike_rewind", "metrics.jsonl")]
    assert max(losses) < 8


@pytest.mark.ranks
@pytest.mark.parametrize("name", mostly_slow(REWINDS, "further stages"))
def test_two_ranks_rewind_together(shards, tmp_path, name):
    errors = run_scenarios(shards, tmp_path, [name], ranks=2)
    (run,) = found(tmp_path, name)
    assert run["ended"] == "finished" and decisions(tmp_path, name) == [("rewind", 13, 13)]
    assert errors.count("rewinding to the checkpoint of step 10") == 1


def test_evaluations_take_no_training_time(command, tmp_path):
    words = command.words("--run-folder", tmp_path, "--steps", 4, "--evaluation.every_steps", 2)
    assert command.run(words, module=FAULTY, FAULT="evaluate:0:3")[0] == 0
    assert lines(tmp_path, "evals.jsonl", without=())[-1]["training_seconds"] < 3


def test_a_hang_that_keeps_the_lock_of_the_interpreter_prints_the_stacks(command, tmp_path):
    words = command.words("--run-folder", tmp_path / "run")
    status, _, errors = command.run(words, module=FAULTY, FAULT="hang:0:7")
    assert status == 0  # it continued
    _, _, stacks = errors.partition("Timeout (0:00:03)!")
    assert "in faulty_step" in stacks and "in _take_steps" in stacks
