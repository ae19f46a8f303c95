"""`tupelo train` without a launcher: what it starts, and in which order."""

import os
import re
import shlex
import sys

import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import as_json
from pretrain.train.launching.launch_plan import LaunchPlan, plan_launch, plan_launches

DATA = ("--data.sequence_length", "32", "--model.vocabulary_size", "256")
ONE = "--no_ssh_check --master_addr 127.0.0.1"
HERE = r"deepspeed --num_gpus 2 --master_port \d+ --module pretrain"


@pytest.fixture
def words(shards):
    return ("train", "tiny_cpu", "--data.shards", str(shards), *DATA)


@pytest.mark.parametrize(
    ("gpus", "options", "launched"),
    [
        (2, [], HERE),
        (8, ["--gpus", "2"], HERE),
        (0, ["--hostfile", "hosts"], f"deepspeed {ONE} --hostfile hosts --module pretrain"),
        (
            1,
            ["--hostfile=hosts", "--gpus=4"],
            f"deepspeed --num_gpus 4 {ONE} --hostfile hosts --module pretrain",
        ),
    ],
)
def test_gpus_and_hosts_are_launched_by_deepspeed(stubs, words, gpus, options, launched):
    stubs.gpus(gpus)
    (stubs.folder / "hosts").write_text("one slots=4\n")
    (stubs.folder / "f").mkdir()
    (stubs.folder / "f/run.json").write_text(as_json(load_settings(words[1], words[2:])))
    status, output, errors = stubs.run(*words, *options, "--run-folder", "f", "--elastic")
    assert status == 0, errors
    (call,) = stubs.calls()
    assert re.match(f"{launched} train tiny_cpu ", call)
    passed = call.partition(" pretrain ")[2].split()
    assert sorted(passed) == sorted([*words, "--run-folder", "f", "--elastic"])
    assert output.splitlines()[1].startswith("shards in ")


def test_a_launcher_that_reports_success_without_a_result_has_failed(stubs, words):
    """As that of DeepSpeed, when its lower process is killed by a signal."""
    stubs.gpus(2)
    status, _, errors = stubs.run(*words, "--run-folder", "f", STUB_NO_RESULT="1")
    assert status == 1 and len(stubs.calls()) == 1
    assert errors == "error: f ended without a result; see its last messages above\n"


def test_the_launcher_gets_the_gpus_that_the_variable_allows(stubs, words):
    """The runner of DeepSpeed removes the variable."""
    stubs.gpus(8)
    status, _, errors = stubs.run(*words, "--run-folder", "f", CUDA_VISIBLE_DEVICES="4,5")
    assert status == 0, errors
    (call,) = stubs.calls()
    included = r"deepspeed --include localhost:4,5 --master_port \d+ --module pretrain train .*"
    assert re.fullmatch(included, call)
    stubs.run(*words, "--run-folder", "g", "--gpus", "2", CUDA_VISIBLE_DEVICES="4,5,6")
    assert re.fullmatch(included, stubs.calls()[1])
    assert stubs.visible() == []  # else DeepSpeed reports that it ignores it


@pytest.mark.parametrize(
    ("gpus", "allowed", "visible", "only"),
    [
        (None, None, 0, None),
        (None, None, 1, None),
        (1, None, 4, "0"),
        (1, "2,3", 4, "2"),
        (None, "3", 4, None),
        (None, "", 4, None),
    ],
)
def test_one_gpu_and_a_cpu_need_no_launcher(stubs, monkeypatch, gpus, allowed, visible, only):
    stubs.gpus(visible)
    monkeypatch.setenv("PATH", str(stubs.bin), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if allowed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)
    assert plan_launch(gpus, None) == LaunchPlan(only_gpu=only)


@pytest.mark.parametrize(
    ("gpus", "options", "message"),
    [
        (2, {"at_once": 3}, "--at-once 3: there are 2 GPUs for these runs"),
        (0, {"at_once": 999}, "--at-once 999: there are .* processors for these runs"),
        (0, {"hostfile": "hosts", "at_once": 2}, "--at-once 2: a run on --hostfile has all"),
    ],
)
def test_runs_for_which_there_is_no_room_are_refused(stubs, monkeypatch, gpus, options, message):
    stubs.gpus(gpus)
    monkeypatch.setenv("PATH", str(stubs.bin), prepend=":")
    monkeypatch.setattr(sys, "executable", str(stubs.bin / "python"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(ConfigError, match=message):
        plan_launches(**{"gpus": None, "hostfile": None, "runs": 2, **options})


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--gpus", "two"], "two: not a whole number of at least 1"),
        (["--gpus", "0"], "0: not a whole number of at least 1"),
        (["--gpus", "3"], "--gpus 3: there are 2 NVIDIA GPUs here"),
        (["--hostfile", "absent"], "--hostfile absent: there is no such file"),
        (["--hostfile", "hosts"], "--hostfile hosts: 'one lots=2' names no machine, or one again"),
        (["--hostfile", "zero"], "--hostfile zero: 'one slots=0' names no machine, or one again"),
        (["--hostfile", "twice"], "--hostfile twice: 'one slots=2' names no machine, or one again"),
        (["--hostfile", "empty"], "--hostfile empty: '' names no machine"),
        (["--hostfile", "small", "--gpus", "5"], "--gpus 5: --hostfile small has a machine with"),
    ],
)
def test_a_wrong_number_or_file_is_one_line(stubs, words, options, parts):
    stubs.gpus(2)
    (stubs.folder / "hosts").write_text("one lots=2\n")
    (stubs.folder / "zero").write_text("one slots=0\n")
    (stubs.folder / "twice").write_text("one slots=2\ntwo slots=2\none slots=2\n")
    (stubs.folder / "empty").write_text("# none\n")
    (stubs.folder / "small").write_text("one slots=8\ntwo slots=4\n")
    status, output, errors = stubs.run(*words, *options)
    assert status == 1 and "shards" not in output and stubs.calls() == []
    assert errors.startswith("error: ") and parts in errors and errors.count("\n") == 1


def test_the_trainer_finds_the_programs_of_an_environment_that_is_not_active(tmp_path, monkeypatch):
    """Hints are for the PATH of the user all the same."""
    for name in ("TUPELO_COMMAND", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", "/bin")
    variables = LaunchPlan(only_gpu="2").variables()
    assert variables["PATH"] == f"{tmp_path}/bin:/bin"
    assert variables["TUPELO_COMMAND"] == f"{shlex.quote(sys.executable)} -m tupelo"
    assert variables["CUDA_VISIBLE_DEVICES"] == "2"
    monkeypatch.setenv("PATH", variables["PATH"])
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as nvidia-smi counts
    assert LaunchPlan().variables() == order | dict(os.environ)


def test_a_host_file_with_one_machine_is_this_machine(tmp_path):
    """To DeepSpeed, whose launcher then handles no signal: the ranks get it."""
    hosts = tmp_path / "hosts"
    for text, several in (("one slots=2\n", False), ("one slots=2\ntwo slots=2\n", True)):
        hosts.write_text(text)
        assert plan_launch(None, hosts).several_machines == several


def test_a_rank_starts_no_launcher_of_its_own(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert plan_launch(None, None) == LaunchPlan()
    with pytest.raises(ConfigError, match="RANK=0.*unset RANK"):
        plan_launch(2, None)


def test_missing_shards_are_built_before_the_launch_with_the_settings_alone(stubs):
    stubs.gpus(2)
    words = ("--run-folder", "f", "--corpus", "text.txt", "--optimizer.betas=0.9,0.98")
    status, _, errors = stubs.run("train", "tiny_cpu", *words, "--model.norm", "post")
    assert status == 0, errors
    settings = "tiny_cpu --corpus text.txt --model.norm post --optimizer.betas 0.9,0.98"
    prepared, launched = stubs.calls()
    assert prepared == f"python -m pretrain prepare {settings} --ranks 2"
    assert re.match(f"{HERE} train tiny_cpu ", launched)


def test_a_failed_build_ends_the_start(stubs):
    stubs.gpus(2)
    failing = {"STUB_FAILS": "* prepare *"}
    status, _, errors = stubs.run("train", "tiny_cpu", "--corpus", "text.txt", **failing)
    assert (status, errors) == (3, "") and len(stubs.calls()) == 1


@pytest.mark.parametrize(("gpus", "ranks"), [((), 6), (("--gpus", "2"), 4)])
def test_a_dry_run_counts_the_ranks_of_all_machines(stubs, words, gpus, ranks):
    (stubs.folder / "hosts").write_text(
        "# ours\none slots=4\n\n  two  slots=2 # small\n#x slots=9\n"
    )
    options = ("--dry-run", "--hostfile", "hosts", "--batch.global_sequences", "48")
    status, output, errors = stubs.run(*words, *options, *gpus)
    assert status == 0, errors
    assert f"{ranks} x {48 // 4 // ranks} x 4" in output
