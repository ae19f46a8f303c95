import random
from types import SimpleNamespace

import pytest
import torch

from finetune.sweep import sweep as sweep_module
from finetune.sweep.trial import run_trial
from finetune.sweep.workers import Cache
from tests.pretrain.conftest import command, shards

__all__ = ["command", "shards"]


@pytest.fixture(scope="session")
def run(command, tmp_path_factory):
    """A tiny pre-training run with checkpoints after 10 and 20 steps."""
    return command.train(tmp_path_factory.mktemp("runs") / "small", "--name", "small")


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with train.tsv, dev.tsv and test.tsv: does the text begin with b?"""
    folder = tmp_path_factory.mktemp("task")
    generator = random.Random(0)
    for name, count in (("train", 64), ("dev", 16), ("test", 8)):
        lines = ["text\tbegins"]
        for number in range(count):
            words = ["".join(generator.choices("abcdefgh", k=4)) for _ in range(3 + number % 4)]
            lines.append(f"{' '.join(words)}\t{'yes' if words[0][0] in 'abcd' else 'no'}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def in_this_process(monkeypatch):
    """Trials run here, where torch is imported; the process ends when none is `left`."""
    state = SimpleNamespace(left=None, ran=[], load=None)

    def run_trials(trials, context, devices):
        load = state.load or Cache(context.protocol, context.digests).load
        for trial in trials:
            if state.left == len(state.ran):
                raise SystemExit
            result = run_trial(
                *(trial, context.folder / trial.folder, context.protocol, load),
                **{"device": torch.device("cpu"), "output": context.output},
                send=lambda message: None,
            )
            state.ran.append(trial)
            yield trial, result

    monkeypatch.setattr(sweep_module, "run_trials", run_trials)
    return state
