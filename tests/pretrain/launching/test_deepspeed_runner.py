"""What DeepSpeed's own launcher makes of the GPUs that a launch plan names."""

import base64
import json

import pytest
from deepspeed.launcher import runner

from pretrain.launching.launch_plan import plan_launch


class EightGpus:
    def visible_devices_envs(self):
        return ["CUDA_VISIBLE_DEVICES"]

    def device_count(self):
        return 8


class Started(Exception):
    pass


def gpus_of_ranks(monkeypatch, words):
    """Return the GPUs that the launcher would give to its ranks, by rank."""

    def start(command, **options):
        (world,) = (w.partition("=")[2] for w in command if w.startswith("--world_info="))
        raise Started(json.loads(base64.urlsafe_b64decode(world)))

    monkeypatch.setattr(runner, "get_accelerator", EightGpus)
    monkeypatch.setattr(runner.subprocess, "Popen", start)
    with pytest.raises(Started) as started:
        runner.main([*words, "--hostfile", "/nowhere", "--module", "pretrain"])
    return started.value.args[0]["localhost"]


@pytest.mark.parametrize(
    ("variable", "gpus", "expected"),
    [
        (None, None, [0, 1, 2, 3, 4, 5, 6, 7]),
        (None, 2, [0, 1]),
        ("4,5", 2, [4, 5]),
        ("4,5,6", 2, [4, 5]),
        ("6,2", None, [2, 6]),  # DeepSpeed sorts them
        ("GPU-5,GPU-3", 2, [3, 5]),
    ],
)
def test_the_ranks_get_the_gpus_that_the_variable_allows(
    stubs, monkeypatch, variable, gpus, expected
):
    stubs.gpus(8)
    monkeypatch.setenv("PATH", str(stubs.bin), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    _, *words = plan_launch(gpus, None).launcher
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # as `LaunchPlan.run` does
    assert gpus_of_ranks(monkeypatch, words) == expected


def test_a_launcher_started_by_hand_reports_that_it_ignores_the_variable(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert gpus_of_ranks(monkeypatch, ["--num_gpus", "2"]) == [0, 1]
    assert "VISIBLE_DEVICES=4,5 but ignoring it" in capsys.readouterr().out
