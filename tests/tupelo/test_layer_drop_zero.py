"""Layer drop under DeepSpeed, on one rank and on two, against a plain PyTorch loop."""

import json
from types import SimpleNamespace

import pytest
import torch

from pretrain.config.errors import ConfigError
from tests.forked_command import run_module
from tests.tupelo import layer_drop_case as case


def check(ranks, folder, names):
    words = [folder, *names]
    status, _, errors = run_module("tests.tupelo.layer_drop_case", words, ranks)
    assert status == 0, errors[-3000:]
    for name, found in json.loads((folder / "found.json").read_text()).items():
        losses, weights = case.plain_loop(name, ranks)
        # engines: 1e-6 relative, the sums run in another order
        assert found["losses"] == pytest.approx(losses, rel=2e-6), name
        ours = {key: torch.tensor(weight) for key, weight in found["weights"].items()}
        # Adam moves the weights of the smallest gradients as far as the others, 0.01 here, and the
        # rounding of these gradients with them.
        torch.testing.assert_close(ours, weights, rtol=1e-4, atol=5e-5)
        if name in case.RESUMED:
            assert found["resumed"] == found["losses"][3:], name


@pytest.mark.ranks
def test_zero_is_the_plain_loop_with_zero_gradients(tmp_path):
    check(1, tmp_path, ("stage1", "stage3_attached"))


@pytest.mark.ranks
@pytest.mark.slow("every stage, on two ranks")
def test_every_stage_is_the_plain_loop_on_two_ranks(tmp_path):
    check(2, tmp_path, case.CONFIGURATIONS)


def fake_engine(model, *, stage=2, offload="none", overlaps=False):
    return SimpleNamespace(
        module=model,
        optimizer=None,
        zero_offload_optimizer=lambda: SimpleNamespace(device=offload),
        zero_optimization_stage=lambda: stage,
        zero_overlap_comm=lambda: overlaps,
        gradient_accumulation_steps=lambda: 2,
    )


def test_what_deepspeed_cannot_do_is_refused_in_one_line():
    model = case.build_model()
    drop = case.build_drop(model, per_step=False)
    for device in ("cpu", "nvme"):
        with pytest.raises(ConfigError, match="does not work with offload_optimizer; leave it out"):
            drop.attach(fake_engine(model, offload=device))
    with pytest.raises(ConfigError, match="overlap_comm at stage 1 and 2 micro-batches"):
        drop.attach(fake_engine(model, stage=1, overlaps=True))
    with pytest.raises(ConfigError, match="another model than the one of this LayerDrop"):
        drop.attach(fake_engine(case.build_model()))


def test_remove_ends_the_count_of_an_engine():
    model = case.build_model()
    drop = case.build_drop(model, per_step=True)
    drop.attach(fake_engine(model, stage=0))
    drop.remove()
    drop.begin_step(0)  # which is refused while an engine counts
    model(**case.batch_of(0, 0))  # in training mode the engine would be asked for its step


def test_steps_of_a_model_under_zero_are_counted_by_its_engine():
    model = case.build_model()
    drop = case.build_drop(model, per_step=False)
    next(drop.blocks[0].parameters()).ds_id = 0  # as ZeRO stage 3 marks a weight
    with pytest.raises(ConfigError, match=r"counted by its DeepSpeed engine: call attach\(engine"):
        drop.begin_step(0)
