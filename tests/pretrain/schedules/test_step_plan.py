"""The plan of a step against the functions of the finished steps that it is made of."""

import itertools

import pytest

from pretrain.config.recipe import load_settings
from pretrain.schedules.layer_drop import branch_scales, theta_at
from pretrain.schedules.learning_rate import learning_rate_at
from pretrain.schedules.step_plan import Schedule

WORDS = ("--layer_drop.schedule", "progressive", "--batch.micro_sequences", "2", "--seed", "3")


def plan_of(step, *words):
    settings = load_settings("tiny_cpu", [*WORDS, *words])
    return settings, Schedule(settings, world_size=2).plan(step)


@pytest.mark.parametrize("step", [1, 2, 13, 20])
def test_step_n_has_learning_rate_theta_and_drop_mask_of_n_minus_1_finished_steps(step):
    settings, plan = plan_of(step)
    assert plan.learning_rate == learning_rate_at(step - 1, settings.learning_rate, 20)
    assert plan.theta == theta_at(step - 1, settings.layer_drop, 20)
    assert plan.branch_scales == [
        branch_scales(step - 1, micro, settings.layer_drop, theta=plan.theta, num_layers=2, seed=3)
        for micro in range(2)  # 8 sequences are 2 x 2 x 2
    ]


def test_a_plan_takes_its_micro_batches_and_leaves_the_next_ones():
    _, plan = plan_of(2)
    batches = itertools.count(10)
    assert list(plan.micro_batches(batches)) == list(zip((10, 11), plan.branch_scales, strict=True))
    assert next(batches) == 12


def test_every_step_and_rank_has_its_dropout_seed_and_it_never_changes():
    seeds = {(step, n): plan_of(step)[1].dropout_seed(n) for step in (1, 2) for n in (0, 1)}
    assert len(set(seeds.values())) == 4
    # What runs that began earlier have drawn from.
    odd = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
    assert seeds[2, 1] == (3 * odd[0] + 1 * odd[1] + 1 * odd[2]) % 2**63
    assert seeds[1, 0] == 3 * odd[0] % 2**63


def test_pld_base_trains_the_same_blocks_on_one_gpu_as_on_the_authors_64():
    """A quarter of a step's sequences share their blocks, in one pass or in two."""
    plans = {}
    for ranks, rows in ((64, "16"), (1, "512"), (1, "auto")):
        settings = load_settings("pld_base", ["--batch.micro_sequences", rows])
        plans[ranks, rows] = Schedule(settings, world_size=ranks).plan(5000).branch_scales
    of_64 = plans[64, "16"]
    assert len(of_64) == 4 and len({tuple(scales) for scales in of_64}) == 4
    assert plans[1, "512"] == [scales for scales in of_64 for _ in range(2)]
    assert plans[1, "auto"] == of_64
