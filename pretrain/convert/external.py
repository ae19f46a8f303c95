"""What is read of a model that others have trained, before anything is made of it here."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tokenizers import Tokenizer
from torch import Tensor

from data_prep.files.quoting import plain
from data_prep.shards.manifest import TOKENIZER_FILE
from data_prep.tokenizer.describe import SpecialNames, record_of
from pretrain.config.settings import ModelSettings
from pretrain.convert.text_encoder import TextEncoder

NAMES_SHOWN = 4
# What torch.load raises over a damaged file: its reader stumbles wherever the damage is.
UNREADABLE = (
    *(OSError, EOFError, RuntimeError, pickle.UnpicklingError),
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError),
)


class ExternalModel(NamedTuple):
    """A model that others have trained, in our terms."""

    model: ModelSettings
    weights: dict[str, Tensor]  # state dict of MaskedLanguageModel, fp32, on the CPU
    words: TextEncoder
    name: str
    sequence_length: int  # of the longest row that it was made for
    notes: tuple[str, ...]  # what was changed or left out, for the user


def words_of(tokenizer: Tokenizer, names: SpecialNames, *, moses: str | None = None) -> TextEncoder:
    """Return a foreign tokenizer with what rows need to know of it.

    Args:
        tokenizer: as it is used.
        names: of special tokens that are called otherwise than usual.
        moses: language of the Moses steps before it, if there are any.

    Raises:
        TokenizerError: a special token is missing, or sentences cannot be joined.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / TOKENIZER_FILE
        tokenizer.save(str(file))
        return TextEncoder(
            tokenizer, record_of(tokenizer, file, kind="loaded", moses=moses, names=names)
        )


def describe_names(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(plain, names[:NAMES_SHOWN])) + more
