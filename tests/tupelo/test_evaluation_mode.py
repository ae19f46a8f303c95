"""Every module is as it was after a computation without dropout."""

import torch
from torch import nn

from tupelo.evaluation_mode import evaluation_mode


def test_modules_keep_their_own_modes():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    model[1].eval()  # such as an encoder that its caller keeps as it is
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == [True, True, False, False]
