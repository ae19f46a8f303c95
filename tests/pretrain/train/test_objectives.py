"""Another objective: a class and a line of OBJECTIVES, trained by the command and compared."""

import json
import sys

import pytest
import torch
from torch import nn

from data_prep.shards.format import open_shards
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.convert.pretrained import load_pretrained, restored_network
from pretrain.data.batches import Place, TrainingBatches
from pretrain.model.encoder import initialise
from pretrain.model.execution_plan import PLAIN
from pretrain.model.objectives.catalog import OBJECTIVES
from pretrain.model.objectives.objective import Objective
from tests.pretrain.conftest import lines
from tests.pretrain.train.recording.test_progress import FULL_STEP, HEAD

SHORT = ("--steps", "3", "--log_every_steps", "1", "--evaluation.every_steps", "3")


class HiddenTokenNumber(Objective):
    """Predict the share of the vocabulary that lies below the hidden token."""

    held_out_loss = "token number"

    def __init__(self, model, execution=PLAIN):
        super().__init__(model, execution)
        self.vocabulary_size = model.vocabulary_size
        self.head = nn.Linear(model.width, 1)
        initialise(self, model.initializer_range)

    def forward(self, ids_BS, positions_M, labels_M, branch_scales=None):
        x_MD = self.encoder(ids_BS, branch_scales, positions_M=positions_M)
        found_M = self.head(x_MD).squeeze(1).float()
        return (found_M - labels_M / self.vocabulary_size).square().mean()

    @staticmethod
    def head_multiply_adds(model, *, rows, length, predictions):
        return predictions * model.width


TOY = "hidden_token_number"


@pytest.fixture(scope="module")
def toy(command, tmp_path_factory):
    """A run of the objective: its folder, and what was printed."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    words = command.words("--run-folder", folder, "--objective", TOY, *SHORT)
    status, _, errors = command.run(words, module="tests.pretrain.train.test_objectives")
    assert status == 0, errors[-3000:]
    return folder


def test_it_is_trained_and_its_cost_and_size_are_counted(toy, shards, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, TOY, HiddenTokenNumber)
    settings = load_settings(toy)
    torch.manual_seed(settings.seed)
    model = HiddenTokenNumber(settings.model)
    batches = TrainingBatches(open_shards(shards), settings, Place(4, 0, 1))
    first, *_, last = lines(toy, "metrics.jsonl")
    expected = sum(model(*batches[number]).item() for number in range(2)) / 2
    assert first["loss"] == pytest.approx(expected, rel=1e-5)  # kernels sum in another order
    assert last["loss"] < first["loss"]
    head = 6 * 8 * 5 * settings.model.width  # of 8 rows with 5 predictions each
    assert first["full_depth_flops"] == pytest.approx(FULL_STEP - HEAD + head)
    result = json.loads((toy / "result.json").read_text())
    assert result["parameters"] == sum(p.numel() for p in model.parameters())


def test_its_encoder_can_be_loaded_and_its_words_cannot_be_predicted(toy, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, TOY, HiddenTokenNumber)
    pretrained = load_pretrained(toy)
    assert "encoder.token_embeddings.weight" in pretrained.weights
    with pytest.raises(ConfigError, match=f"objective={TOY}; this needs a model of objective="):
        restored_network(pretrained)


if __name__ == "__main__":
    from pretrain.__main__ import main

    OBJECTIVES[TOY] = HiddenTokenNumber
    main(sys.argv[1:])
