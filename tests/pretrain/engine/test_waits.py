"""Where a step waits for the device: nowhere at ZeRO stage 0, and at a known number of places."""

from collections import Counter

import pytest
import torch

from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.distributed.ranks import start_ranks
from pretrain.engine import launch
from tests.pretrain.engine import training_case as case
from tests.pretrain.engine.waits import as_on_cuda, recorded

# Eager: what compiled code does cannot be seen from here.
EXECUTION = ("--engine.attention", "eager", "--engine.cpu_kernels", "off")
PLACES = 4


@pytest.fixture
def found(monkeypatch):
    start_ranks()
    from deepspeed.accelerator import get_accelerator

    return as_on_cuda(monkeypatch, get_accelerator())


def waits(found, name, *words, micro_batches=PLACES, timers=None):
    """Return how often the fourth and fifth step wait, by kind, for each step."""
    words = (*words, *EXECUTION, "--batch.global_sequences", str(2 * micro_batches))
    ranks, settings = start_ranks(), case.case_settings(*words)
    config = read_ds_config(name, "cpu") | ({} if timers is None else {"timers": timers})
    config = fill_ds_config(config, settings, world_size=1)
    engine = launch.build_engine(settings, config, ranks)

    def step(number):
        batches = [
            (case.micro_batch(number, place), case.scales_of(settings, number, place))
            for place in range(micro_batches)
        ]
        return engine.train_step(batches, 1e-3)

    for number in range(3):  # DeepSpeed's timer begins to wait after two
        step(number)
    found.clear()
    with recorded(found):
        results = [step(number) for number in (3, 4)]
    assert all(torch.isfinite(result.losses).all() for result in results)
    return {kind: count / 2 for kind, count in Counter(found).items()}


def test_what_waits_is_seen(found):
    """Else the tests below could not fail."""
    x = torch.ones(3)
    with recorded(found):
        float(x[0]), bool(x[0] > 0), x.tolist(), x.cpu(), torch.tensor(1.0), x[x > 0]
    seen = Counter(found)
    assert seen["read a number"] >= 2 and seen["read a shape"] == 1
    assert seen["copy to the host"] == 2 and seen["copy from the host"] == 1


@pytest.mark.parametrize("name", ["zero0_fp32", "zero0_bf16_autocast"])
def test_a_step_at_stage_0_waits_nowhere(found, name):
    """With skipped blocks, accumulation and clipping."""
    assert waits(found, name) == {}


def test_deepspeeds_timer_waits_twice_in_a_micro_batch_if_a_json_asks_for_it(found):
    timers = {"throughput": {"enabled": True, "synchronized": True}}
    assert waits(found, "zero0_fp32", timers=timers) == {"wait for the device": 2 * PLACES}
