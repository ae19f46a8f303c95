import os

import pytest
import torch.distributed as distributed

from pretrain.doctor import launch
from pretrain.doctor.launch import (
    OTHERWISE,
    communication,
    gpu_communication,
    launcher_variables,
    launchers,
    ssh,
)
from pretrain.doctor.ranks import Trial, try_ranks
from tests.pretrain.doctor.conftest import WITH_GPUS


def test_launchers_beside_the_running_python_are_fit(machine):
    for name in ("torchrun", "deepspeed"):
        machine.command(name)
    assert launchers(machine.surroundings(), folder=machine.root / "bin").mark == "ok"


def test_launchers_of_another_environment_are_a_warning(machine):
    for name in ("torchrun", "deepspeed"):
        machine.command(name, folder="environment/bin")
    machine.command("deepspeed")
    own = machine.root / "environment" / "bin"
    found = launchers(machine.surroundings(), folder=own)
    assert found.mark == "warning" and found.fix == f"export PATH={own}:$PATH"
    assert f"deepspeed is {machine.root / 'bin' / 'deepspeed'}" in found.found


@pytest.mark.parametrize(("ranks", "mark"), [(1, "warning"), (2, "problem")])
def test_missing_launchers_matter_to_several_ranks(machine, ranks, mark):
    found = launchers(machine.surroundings(ranks=ranks), folder=machine.root / "bin")
    assert found.mark == mark and "torchrun and deepspeed not in" in found.found


def test_ssh_is_no_fault_either_way(machine):
    assert ssh(machine.surroundings()).mark == "ok"
    machine.command("ssh")
    assert "for --hostfile" in ssh(machine.surroundings()).found


def test_what_a_launcher_left_in_the_shell_is_a_problem(machine):
    left = {"RANK": "0", "WORLD_SIZE": "2"}
    found = launcher_variables(machine.surroundings(environment=left))
    assert found.mark == "problem" and found.fix == "unset RANK WORLD_SIZE"
    assert launcher_variables(machine.surroundings()).mark == "ok"


def test_a_master_that_is_no_machine_is_a_problem(machine):
    for address, mark in (("127.0.0.1", "ok"), ("no.such.machine.invalid", "problem")):
        surroundings = machine.surroundings(environment={"MASTER_ADDR": address})
        assert launcher_variables(surroundings).mark == mark


@pytest.mark.ranks
def test_an_interface_that_is_none_is_named(machine):
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "nosuch0"}
    found = communication(machine.surroundings(environment=environment))
    assert found.mark == "problem" and "nosuch0" in found.found
    assert found.fix.startswith("GLOO_SOCKET_IFNAME names no interface")


@pytest.mark.ranks
def test_processes_that_do_not_answer_are_ended_when_the_time_is_up():
    trial = try_ranks("gloo", 2, os.environ, start_seconds=0.0)
    assert trial.complaint == "no answer within 0 s"


@pytest.mark.parametrize(
    ("complaint", "fix"),
    [
        ("[c10d] Unable to resolve hostname to a (local) address", "/etc/hosts"),
        ("ncclUnhandledCudaError: unhandled system error", "/dev/shm"),
        ("no answer within 60 s", OTHERWISE),
    ],
)
def test_what_a_rank_says_leads_to_what_helps(machine, monkeypatch, complaint, fix):
    monkeypatch.setattr(launch, "try_ranks", lambda *_: Trial(complaint))
    found = gpu_communication(machine.surroundings(accelerators=WITH_GPUS))
    assert found.mark == "problem" and fix in found.fix and complaint in found.found


def test_one_gpu_needs_no_nccl(machine):
    assert "NCCL is not used" in gpu_communication(machine.surroundings()).found


def test_a_machine_that_cannot_reach_itself_is_told(monkeypatch):
    def refuse(*_, **__):
        raise distributed.DistNetworkError("the client has timed out")

    monkeypatch.setattr(distributed, "TCPStore", refuse)
    complaint = try_ranks("gloo", 2, os.environ).complaint
    assert complaint.startswith("this machine cannot connect to itself at 127.0.0.1")
