"""Read an external model of any supported kind, found by the place that the user gives.

hf_bert.py         BERT and ELECTRA's discriminator, as Hugging Face's transformers saves them
fairseq_tupe.py    TUPE, as its authors' fork of fairseq saves it
"""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from data_prep.files.program import shell_command
from data_prep.shards.manifest import TOKENIZER_FILE
from data_prep.tokenizer.fairseq import UNK, fairseq_tokenizer
from data_prep.tokenizer.load import load_tokenizer, special_names_beside
from pretrain.config.errors import ConfigError
from pretrain.convert.external.external_model import ExternalModel, text_encoder_of
from pretrain.convert.external.fairseq_tupe import read_tupe
from pretrain.convert.external.hf_bert import (
    is_hub_name,
    is_hugging_face_folder,
    read_transformers_model,
)

# As the TUPE authors' scripts call them.
DICTIONARY_FILE, MERGES_FILE = "dict.txt", "bpe-code"
MOSES_LANGUAGE = "en"  # of the authors' preparation of text
TOKENS, OUTPUT_BIAS = "encoder.token_embeddings.weight", "head.output_bias"

OPTIMIZER_NOTE = "left out: the optimizer's state; the learning-rate schedule starts anew"


class TokenizerFiles(NamedTuple):
    """The tokenizer files of a TUPE checkpoint, where they are not beside it."""

    dictionary: Path | None = None
    codes: Path | None = None
    tokenizer: str | None = None  # instead of both, with the same ids


def read_external(place: str, files: TokenizerFiles | None = None) -> ExternalModel | None:
    """Read an external model; None where there is none.

    Args:
        place: a folder, a file, or a name on the Hugging Face Hub.
        files: of the tokenizer of a TUPE checkpoint.

    Raises:
        ConfigError: it has a feature that is not supported here, or is damaged.
        TokenizerError: its tokenizer is missing, or is that of another model.
    """
    path = Path(place)
    if path.suffix == ".pt" and not path.is_dir():
        return _with_tokenizer(path, files or TokenizerFiles()) if path.is_file() else None
    if is_hugging_face_folder(path) or is_hub_name(place):
        return read_transformers_model(place)
    return None


def _with_tokenizer(file: Path, files: TokenizerFiles) -> ExternalModel:
    """Read a checkpoint of the TUPE authors' code with its tokenizer."""
    model, weights = read_tupe(file)
    place, notes = files.tokenizer, [OPTIMIZER_NOTE]
    if not any(files) and (file.parent / TOKENIZER_FILE).is_file():
        place = str(file.parent / TOKENIZER_FILE)
    if place is not None:
        text_encoder = text_encoder_of(
            load_tokenizer(place), special_names_beside(place), moses=MOSES_LANGUAGE
        )
    else:
        dictionary, codes = _dictionary_and_codes(file, files)
        tokenizer, copies = fairseq_tokenizer(dictionary, codes, num_rows=model.vocabulary_size)
        text_encoder = text_encoder_of(tokenizer, {}, moses=MOSES_LANGUAGE)
        if copies:
            weights = with_copies(weights, text_encoder.special["unk"], copies)
            size = model.vocabulary_size + copies
            model = model.model_copy(update={"vocabulary_size": size})
            notes.append(
                f"{copies:,} pieces of {codes.name} are not in {dictionary.name}; each got a copy "
                f"of the row of {UNK}, so that model.vocabulary_size is {size:,}"
            )
    return ExternalModel(
        model, weights, text_encoder, file.stem, model.max_sequence_length, tuple(notes)
    )


def with_copies(weights: dict[str, Tensor], row: int, copies: int) -> dict[str, Tensor]:
    """Return weights with copies of one row of the vocabulary appended.

    A piece that BPE makes and the dictionary lacks is <unk> to the model. Its copy has the same
    vector; the bias is lowered by log(1 + copies), so that the copies share the probability of
    <unk> and those of all other tokens are unchanged.
    """
    embeddings, bias = weights[TOKENS], weights[OUTPUT_BIAS].clone()
    bias[row] -= math.log(1 + copies)
    return weights | {
        TOKENS: torch.cat([embeddings, embeddings[row].expand(copies, -1)]),
        OUTPUT_BIAS: torch.cat([bias, bias[row].expand(copies)]),
    }


def _dictionary_and_codes(file: Path, files: TokenizerFiles) -> tuple[Path, Path]:
    dictionary = files.dictionary or file.parent / DICTIONARY_FILE
    codes = files.codes or file.parent / MERGES_FILE
    for wanted in (dictionary, codes):
        if not wanted.is_file():
            raise ConfigError(
                f"there is no {wanted}, and without it the ids of {file} mean nothing; put "
                f"{DICTIONARY_FILE} and {MERGES_FILE} beside it, or a {TOKENIZER_FILE} of the same "
                f"ids, or name them to {shell_command('import')}"
            )
    return dictionary, codes
