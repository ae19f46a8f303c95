import pytest
import torch
from torch import nn

from pretrain.config.settings import ModelSettings
from pretrain.convert.exports.hf_format import write_pretrained
from pretrain.convert.pretrained import Pretrained
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from tests.pretrain.convert.small_tokenizers import text_encoder_of, trained

LENGTH = 24


def small_model(text_encoder, **values):
    """Return a model of two layers whose every weight has an effect."""
    model = ModelSettings(
        num_layers=2,
        width=32,
        num_heads=4,
        feedforward_width=64,
        vocabulary_size=text_encoder.record.vocabulary_size,
        max_sequence_length=LENGTH,
        **values,
    )
    torch.manual_seed(0)
    network = MaskedLanguageModel(model)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    weights = {name: weight.detach() for name, weight in network.state_dict().items()}
    return Pretrained(model, weights, text_encoder, "small", "nowhere", 1, LENGTH)


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Return a function that exports a model of a variant once, and returns the folder."""
    text_encoder = text_encoder_of(trained("wordpiece"), tmp_path_factory.mktemp("words"))
    made = {}

    def folder_of(positions, norm="pre"):
        if (positions, norm) not in made:
            # transformers names the module of the code after the folder.
            folder = tmp_path_factory.mktemp("exports") / f"{positions}_{norm}"
            folder.mkdir()
            write_pretrained(folder, small_model(text_encoder, positions=positions, norm=norm))
            made[positions, norm] = folder
        return made[positions, norm]

    return folder_of
