"""A reference is one model, even if its run changes during a sweep."""

import shutil

import pytest
import torch

from finetune.sweep.references import load_model, read_model_refs


@pytest.mark.parametrize("checkpoints", [["newest"], ["all"]])
def test_a_reference_stays_at_its_checkpoint_when_pre_training_goes_on(run, tmp_path, checkpoints):
    growing = shutil.copytree(run, tmp_path / "run")
    model = [*read_model_refs([str(growing)], checkpoints, from_scratch=False)][-1]
    shutil.copytree(growing / "checkpoints/step_00000010", growing / "checkpoints/step_00000030")
    expected = load_model(model.source)
    (found,) = read_model_refs([str(growing)], ["20"], from_scratch=False)
    assert (model.step, expected.step, found) == (20, 20, model)
    weights = load_model(found.source).weights
    assert all(torch.equal(weights[name], expected.weights[name]) for name in weights)
