"""`ExternalModel`, the form in which models of other programs are read, and its parts."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tokenizers import Tokenizer
from torch import Tensor

from data_prep.shards.manifest import TOKENIZER_FILE
from data_prep.tokenizer.describe import SpecialNames, record_of
from pretrain.config.settings import DEFAULT_OBJECTIVE, ModelSettings
from pretrain.convert.text_encoder import TextEncoder


class ExternalModel(NamedTuple):
    """A model of another program, with the names and settings of ours."""

    model: ModelSettings
    weights: dict[str, Tensor]  # state dict of its Objective or Discriminator, fp32, on the CPU
    text_encoder: TextEncoder
    name: str
    sequence_length: int  # of the longest row that it takes
    notes: tuple[str, ...]  # changes and omissions, for the user
    objective: str = DEFAULT_OBJECTIVE


def text_encoder_of(
    tokenizer: Tokenizer, names: SpecialNames, *, moses: str | None = None
) -> TextEncoder:
    """Return the text encoder of an external tokenizer.

    Args:
        tokenizer: in the state in which it is used.
        names: of special tokens with unusual names.
        moses: language of the Moses steps before it; None: no such steps.

    Raises:
        TokenizerError: a special token is missing, or sentences cannot be joined.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / TOKENIZER_FILE
        tokenizer.save(str(file))
        return TextEncoder(
            tokenizer, record_of(tokenizer, file, kind="loaded", moses=moses, names=names)
        )
