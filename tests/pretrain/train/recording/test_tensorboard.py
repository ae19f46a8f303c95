"""TensorBoard's files survive a full disk and hold the settings; which curves they show."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from pretrain.config.recipe import load_settings
from pretrain.train.recording.scalars import scalars_of_evaluation, scalars_of_metrics
from pretrain.train.recording.tensorboard import Curves
from tests.pretrain.run_files import full_disk


@pytest.fixture
def curves(tmp_path):
    found = Curves(tmp_path, load_settings("tiny_cpu"))
    found.restart(0)
    return found


def events(folder):
    return EventAccumulator(str(folder)).Reload()


def points(folder, name="train/loss"):
    return [(point.step, point.value) for point in events(folder).Scalars(name)]


def test_points_that_cannot_be_written_are_left_out_with_one_line(
    tmp_path, curves, monkeypatch, capsys
):
    curves.show(1, {"train/loss": 4.0})
    with monkeypatch.context() as patched:
        patched.setattr(SummaryWriter, "flush", full_disk)
        curves.show(2, {"train/loss": 3.0})
        patched.setattr(SummaryWriter, "__init__", full_disk)
        curves.show(3, {"train/loss": 2.0})
    curves.show(4, {"train/loss": 1.0})
    curves.close()
    assert points(tmp_path) == [(1, 4.0), (4, 1.0)]
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_points_after_a_rewind_replace_those_before(tmp_path, curves):
    for step in (1, 2, 3):
        curves.show(step, {"train/loss": 1.0})
    curves.restart(1)
    curves.show(2, {"train/loss": 5.0})
    curves.close()
    assert points(tmp_path) == [(1, 1.0), (2, 5.0)]


def test_the_settings_are_a_table(tmp_path, curves):
    curves.show(1, {"held_out/loss": 4.0})
    curves.close()
    (text,) = events(tmp_path).Tensors("settings/text_summary")
    table = text.tensor_proto.string_val[0].decode()
    assert "\n| model.num_layers | 2 |\n" in table and "\n| hours | None |\n" in table


METRICS = {
    **{"step": 5, "tokens": 1280, "tokens_per_second": 1000.0, "loss": 6.5, "gradient_norm": None},
    **{"flops": 2.0, "expected_flops": 2.5, "full_depth_flops": 3.0, "new_number": 7},
    **{"theta": 0.5, "keep_rates": [0.7, 0.4], "skipped_steps": 0, "left_out_steps": 0},
    **{"loss_scale": 1.0, "parts": {"generator_loss": 6.0}},
}
ALWAYS = {
    *("train/loss", "train/new_number", "train/loss_scale", "train/generator_loss"),
    *("totals/tokens", "totals/flops", "totals/skipped_steps", "totals/left_out_steps"),
    "speed/tokens_per_second",
}
OF_LAYER_DROP = {
    *("totals/expected_flops", "totals/full_depth_flops", "keep_rates/theta"),
    *(f"keep_rates/layer_0{layer}{kind}" for layer in (1, 2) for kind in ("", "_expected")),
}


def test_layers_are_curves_beside_what_is_expected_of_them_where_they_are_dropped():
    assert set(scalars_of_metrics(METRICS, load_settings("tiny_cpu"))) == ALWAYS
    settings = load_settings("tiny_cpu", ["--layer_drop.schedule", "progressive"])
    found = scalars_of_metrics(METRICS, settings)
    assert set(found) == ALWAYS | OF_LAYER_DROP
    # 1 - (i / L)(1 - theta) for layer i of L, with L 2 and theta 0.5.
    assert [found[f"keep_rates/layer_0{layer}_expected"] for layer in (1, 2)] == [0.75, 0.5]
    assert [found[f"keep_rates/layer_0{layer}"] for layer in (1, 2)] == [0.7, 0.4]
    evaluation = {"step": 5, "loss": 6.0, "predictions": 320}
    assert scalars_of_evaluation(evaluation) == {"held_out/loss": 6.0}
    parts = {"parts": {"generator_loss": 5.0}}
    expected = {"held_out/loss": 6.0, "held_out/generator_loss": 5.0}
    assert scalars_of_evaluation({**evaluation, **parts}) == expected
