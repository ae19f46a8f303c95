"""A backend of the tests' own, and two ranks that train."""

from types import SimpleNamespace

import pytest
import torch

from pretrain.config.recipe import load_settings
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.profiling import step_timer as phases_module
from pretrain.profiling.communication import CountedCollectives
from pretrain.profiling.step_timer import Phases
from tests.pretrain.conftest import lines
from tests.selection import mostly_slow


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(phases_module.time, "perf_counter", lambda: clock.now)
    return clock


class Backend:
    """Takes 2 seconds for a call, and 3 for the wait where it was only started."""

    name = "of the tests"

    def __init__(self, clock, world_size=2):
        self.clock, self.world_size = clock, world_size

    def get_world_size(self):
        return self.world_size

    def all_reduce(self, tensor, op=None, group=None, async_op=False):
        self.clock.now += 2
        if not async_op:
            return None

        def wait():
            self.clock.now += 3
            return True

        return SimpleNamespace(wait=wait, is_completed=lambda: False)

    def all_gather_into_tensor(self, output_tensor, input_tensor):
        self.clock.now += 2

    def reduce_scatter(self, output, input_list):
        self.clock.now += 2


def exchange(collectives):
    """Exchange 40 bytes in each of three ways."""
    half, whole = torch.zeros(5), torch.zeros(10)
    collectives.all_reduce(whole)
    collectives.all_gather_into_tensor(output_tensor=whole, input_tensor=half)
    collectives.reduce_scatter(half, [half, half])


def test_the_payload_is_the_larger_side_by_kind(clock):
    phases = Phases("cpu")
    collectives = CountedCollectives(Backend(clock), phases)
    with phases.phase("backward"):
        clock.now += 1
        exchange(collectives)
        collectives.all_reduce(torch.zeros(1))
    assert collectives.take_payload_bytes() == {
        "all_reduce": 44,
        "all_gather_into_tensor": 40,
        "reduce_scatter": 40,
    }
    assert collectives.take_payload_bytes() == {}
    assert phases.take_seconds() == {"backward": 1, "communication": 4 * 2}


def test_waiting_for_a_collective_that_was_started_is_communication(clock):
    phases = Phases("cpu")
    collectives = CountedCollectives(Backend(clock), phases)
    with phases.phase("forward"):
        work = collectives.all_reduce(torch.zeros(1), async_op=True)
        clock.now += 10  # something useful
        assert work.is_completed() is False and work.wait() is True
    assert phases.take_seconds() == {"forward": 10, "communication": 2 + 3}


def test_what_is_exchanged_between_steps_does_not_count(clock):
    phases = Phases("cpu")
    collectives = CountedCollectives(Backend(clock), phases)
    exchange(collectives)
    assert collectives.all_reduce(torch.zeros(1), async_op=True).wait()
    assert collectives.take_payload_bytes() == {} and phases.take_seconds() == {}


def test_one_rank_exchanges_nothing(clock):
    phases = Phases("cpu")
    collectives = CountedCollectives(Backend(clock, world_size=1), phases)
    with phases.phase("backward"):
        exchange(collectives)
    assert collectives.take_payload_bytes() == {}
    assert phases.take_seconds() == {"backward": 0, "communication": 6}


def test_bytes_on_another_stream_count_and_their_time_does_not(clock, monkeypatch):
    phases = Phases("cpu")
    monkeypatch.setattr(phases, "covers_this_stream", lambda: False)
    collectives = CountedCollectives(Backend(clock), phases)
    with phases.phase("backward"):
        exchange(collectives)
    assert sum(collectives.take_payload_bytes().values()) == 120
    assert phases.take_seconds() == {"backward": 6}


def test_of_two_engines_the_newest_one_counts(clock):
    older, newer = Phases("cpu"), Phases("cpu")
    first = CountedCollectives(Backend(clock), older)
    second = CountedCollectives(first, newer)
    assert second.name == "of the tests"
    with older.phase("backward"), newer.phase("backward"):
        exchange(second)
    assert first.take_payload_bytes() == {}
    assert sum(second.take_payload_bytes().values()) == 120


@pytest.mark.ranks
@pytest.mark.parametrize("stage", mostly_slow([1, 2], "another ZeRO stage"))
def test_zero_reduces_the_gradients_once_and_gathers_the_weights_once(command, tmp_path, stage):
    """Rajbhandari et al., ZeRO (SC 2020), Sec. 7: as much as plain data parallelism."""
    words = ("--engine.ds_config", f"zero{stage}_fp32", "--batch.micro_sequences", 4)
    folder = command.train(tmp_path / "run", *words, ranks=2)
    model = MaskedLanguageModel(load_settings("tiny_cpu").model)
    weight_bytes = sum(parameter.nbytes for parameter in model.parameters())
    for row in lines(folder, "metrics.jsonl", without=()):
        exchanged = row["payload_bytes_per_step"]
        assert exchanged["all_gather_into_tensor"] == weight_bytes
        # and a few numbers on which the ranks agree: the norm, whether something overflowed
        assert weight_bytes <= exchanged["all_reduce"] <= weight_bytes + 64
        assert row["time_shares"]["communication"] > 0
