"""A source is one model, whatever happens around it while a grid runs."""

import shutil

import pytest
import torch

from finetune.sweep.sources import read_sources
from pretrain.config.errors import ConfigError


@pytest.mark.parametrize("checkpoints", [["newest"], ["all"], ["20"]])
def test_a_source_stays_the_checkpoint_that_it_was_when_pre_training_goes_on(
    run, tmp_path, checkpoints
):
    growing = shutil.copytree(run, tmp_path / "run")
    source = read_sources([str(growing)], checkpoints, from_scratch=False)[-1]
    shutil.copytree(growing / "checkpoints/step_00000010", growing / "checkpoints/step_00000030")
    expected, found = source.load(), read_sources([str(growing)], ["20"], from_scratch=False)[0]
    assert (source.step, expected.step, found) == (20, 20, source)
    weights = found.load().weights
    assert all(torch.equal(weights[name], expected.weights[name]) for name in weights)


def test_a_model_that_changed_after_the_start_is_refused(run, tmp_path):
    growing = shutil.copytree(run, tmp_path / "run")
    (source,) = read_sources([str(growing)], ["20"], from_scratch=False)
    shutil.rmtree(growing / "checkpoints/step_00000020")
    shutil.copytree(growing / "checkpoints/step_00000010", growing / "checkpoints/step_00000020")
    with pytest.raises(ConfigError, match="step_00000020 has changed since this grid was started"):
        source.load()
