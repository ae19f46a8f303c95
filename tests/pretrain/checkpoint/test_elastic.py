"""A run can be resumed on any number of ranks, at any ZeRO stage."""

import json
import shutil

import pytest
import torch

from pretrain.checkpoint.folders import checkpoint_folder
from pretrain.checkpoint.format import Checkpoint, Piece
from pretrain.config.recipe import load_settings
from pretrain.distributed.ranks import start_ranks
from pretrain.engine.footprint import checkpoint_bytes, needed_bytes
from pretrain.engine.micro_batches import SHARE
from pretrain.model.execution_plan import ExecutionPlan
from tests.forked_command import run_module
from tests.pretrain.checkpoint.test_format import flip
from tests.pretrain.conftest import lines
from tests.pretrain.engine import training_case as case
from tests.selection import mostly_slow

from . import elastic_case

STAGES = ["zero0_fp32", "zero1_fp32", "zero2_fp32", "zero3_fp32"]


def everything(checkpoint):
    """Return weights and optimizer state whole, by kind and parameter."""
    sizes = {name: torch.Size(shape).numel() for name, shape in checkpoint.content.shapes.items()}
    return {
        (kind, name): checkpoint.read(kind, name, Piece(0, size))
        for name, size in sizes.items()
        for kind in ("weight", *checkpoint.content.optimizer_state[name])
    }


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run of one rank at stage 0 that was not stopped, and its checkpoint after 3 steps."""
    folder = tmp_path_factory.mktemp("straight")
    ranks, settings = start_ranks(), case.case_settings(*elastic_case.SETTINGS)
    engine = case.build_engine(settings, ranks, "zero0_fp32")
    case.train_steps(engine, settings, range(3), places=6)
    checkpoint = case.saved(engine, folder, 3)
    losses, norms = case.train_steps(engine, settings, range(3, case.STEPS), places=6)
    # Not stopped: DeepSpeed remembers the group as long as the process lives.
    return checkpoint.folder, losses, norms


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", mostly_slow([1, 3], "starts three processes"))
def test_a_checkpoint_goes_through_any_ranks_and_stage_bit_for_bit(ranks, straight, tmp_path):
    """Restored and saved again, weights and both moments are what they were; so is what follows.

    At 3 ranks ZeRO cuts parameters in the middle, and pads.
    """
    source, losses, norms = straight
    words = [tmp_path, source, *STAGES]
    status, _, errors = run_module("tests.pretrain.checkpoint.elastic_case", words, ranks)
    assert status == 0, errors[-3000:]
    expected = everything(Checkpoint(source))
    found = json.loads((tmp_path / "found.json").read_text())
    for name in STAGES:
        again = Checkpoint(checkpoint_folder(tmp_path / name, 3))
        assert again.content.world_size == ranks
        assert again.content.engine.adam_steps == 3
        torch.testing.assert_close(everything(again), expected, rtol=0, atol=0)
        # sums in another order
        assert found[name]["losses"] == pytest.approx(losses, rel=2e-6), name
        assert found[name]["norms"] == pytest.approx(norms, rel=1e-5), name
        factors = {factor for _, factor, *_ in found[name]["groups"]}
        decays = {weight_decay for *_, weight_decay in found[name]["groups"]}
        assert factors == {1.0, 4.0, 16.0}, name
        assert decays >= {0.1, 0.0}, name


def cut(run, step):
    """Make of a finished run one that was killed after `step` steps, later than its checkpoint."""
    (run / "result.json").unlink()
    for folder in (run / "checkpoints").iterdir():
        if int(folder.name[5:]) > step:
            shutil.rmtree(folder)


@pytest.mark.ranks
def test_two_ranks_resume_a_run_of_one_from_an_older_checkpoint_with_what_fits_on_both(
    command, tmp_path
):
    """The newest checkpoint is damaged, and rank 1 has room for two of its four sequences."""
    run = command.train(tmp_path / "run", "--batch.micro_sequences", "auto")
    before = lines(run, "evals.jsonl")
    cut(run, 20)
    flip(run / "checkpoints/step_00000020/part_00000.safetensors")
    config = json.loads((run / "ds_config.json").read_text())
    needed = needed_bytes(load_settings(run), config, 2, ExecutionPlan("fused"), 2)
    room = int(needed / SHARE) + 1 + checkpoint_bytes(load_settings(run))
    fault = {"FAULT": f"memory:1:{room}"}
    module = "tests.pretrain.train.stability.run_with_fault"
    words = ["train", str(run), "--elastic"]
    status, _, errors = command.run(words, module=module, ranks=2, **fault)
    assert status == 0 and errors.count("it was renamed to step_00000020.damaged") == 1, errors
    launch = lines(run, "launches.jsonl")[-1]
    assert (launch["world_size"], launch["resumed_from"]) == (2, 10)
    assert launch["micro_batches"] == {"sequences": 2, "per_step": 2}
    assert launch["changed_settings"] == {"world_size": [1, 2]}
    config = json.loads((run / "ds_config.json").read_text())
    sizes = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert [config[name] for name in sizes] == [2, 2]
    for ours, theirs in zip(lines(run, "evals.jsonl"), before, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)  # sums in another order
