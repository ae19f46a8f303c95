import random
from functools import cached_property
from types import SimpleNamespace

import pytest

from finetune.sweep import sweep as sweep_module
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


class WorkerHere:
    """Takes the place of a `Worker`; what it does is `start`."""

    def __init__(self, prepare, receive):
        self.prepare, self.receive = prepare, receive

    def job(self, unit):
        self.unit = unit
        return self

    def status(self):
        return 0

    def end(self):
        pass


@pytest.fixture
def in_this_process(monkeypatch):
    """See `trials_here`."""
    return trials_here(monkeypatch)


def trials_here(monkeypatch):
    """Let trials run here, where torch is imported; the process ends when none is `left`."""
    state = SimpleNamespace(left=None, ran=[])

    class TrainingWorker(WorkerHere):
        runner = cached_property(lambda self: self.prepare())

        def start(self):
            if state.left == len(state.ran):
                raise SystemExit
            self.runner.run(self.unit, lambda message: None)
            state.ran.append(self.unit)

    monkeypatch.setattr(sweep_module, "Worker", TrainingWorker)
    return state
