import shutil

import pytest

from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.recipe import load_settings
from pretrain.doctor.run import (
    execution_is_planned,
    newest_checkpoint_is_sound,
    rows_are_complete,
    settings_are_valid,
)
from tests.pretrain.checkpoint.test_format import write


@pytest.fixture
def run(machine, shards):
    """CheckContext with a run on these shards, and any other setting."""

    def context(*words, folder=shards):
        settings = load_settings("tiny_cpu", ("--data.shards", str(folder), *words))
        read = read_ds_config("zero1_fp32", "cpu")
        filled = fill_ds_config(read, settings, world_size=1)
        return machine.context(recipe="tiny_cpu", settings=settings, ds_config=filled)

    return context


def test_a_run_that_can_start_is_described(run):
    context = run("--engine.cpu_kernels", "off")
    assert "8 rows a step in 2 micro-batch(es) on 1 rank(s)" in settings_are_valid(context).message
    assert "attention eager" in execution_is_planned(context).message
    assert "float32, ZeRO stage 1" in execution_is_planned(context).message
    found = rows_are_complete(context)
    assert found.status == "ok" and "train and" in found.message


def test_rows_that_can_still_be_built_are_a_warning_with_the_command(machine, tmp_path):
    (tmp_path / "text.txt").write_text("A text.\n")
    settings = load_settings("tiny_cpu", ("--corpus", str(tmp_path / "text.txt")))
    found = rows_are_complete(machine.context(recipe="tiny_cpu", settings=settings))
    assert found.status == "warning"
    assert "tupelo prepare tiny_cpu, " in found.fix


def test_a_shard_that_was_cut_short_is_a_problem(run, shards, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(shards, damaged)
    file = next(damaged.glob("*train*"))
    file.write_bytes(file.read_bytes()[:-10])
    found = rows_are_complete(run(folder=damaged))
    assert found.status == "problem" and file.name in found.message and "data repair" in found.fix


def test_shards_that_do_not_fit_the_model_are_a_problem(run):
    found = rows_are_complete(run("--data.sequence_length", "16"))
    assert found.status == "problem" and found.fix == "make them equal"


def test_a_damaged_newest_checkpoint_is_a_warning_and_the_only_one_a_problem(machine):
    context = machine.context()
    assert newest_checkpoint_is_sound(context).message.startswith("none in")
    for older, mark in ((None, "problem"), (5, "warning")):
        if older is not None:
            write(context.run_folder, older)
        newest = write(context.run_folder, 10 + (older or 0))
        assert newest_checkpoint_is_sound(context).status == "ok"
        part = newest / "part_00001.safetensors"
        part.write_bytes(part.read_bytes()[:-1] + b"?")
        found = newest_checkpoint_is_sound(context)
        assert found.status == mark and part.name in found.message
        if older is None:
            shutil.rmtree(newest)
    assert "step_00000005" in found.fix
    assert newest.is_dir()  # looked at, and left as it is
