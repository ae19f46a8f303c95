"""Read a model that transformers' `AutoModelForMaskedLM` opens, as it is."""

from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from data_prep.files.quoting import first_line
from data_prep.text.text_encoder import text_encoder_of
from data_prep.tokenizer.load import load_tokenizer, special_names_beside
from pretrain.config.errors import ConfigError
from pretrain.config.settings import DEFAULT_OBJECTIVE, ModelSettings, explain
from pretrain.config.settings.transformers_config import configuration_of
from pretrain.convert.external.hf_bert import transformers_folder
from pretrain.convert.model import ENCODER_ALONE, Pretrained
from pretrain.model.transformers_encoder import our_name


def read_masked_language_model(place: str, *, trust_remote_code: bool = False) -> Pretrained:
    """Read weights, configuration and tokenizer of a folder, or of a name on the Hub.

    Without a head for masked words it is read as an encoder alone.

    Raises:
        ConfigError: transformers cannot open it, or its parts do not belong together.
        TokenizerError: its tokenizer is missing or cannot be used.
    """
    from transformers import AutoModelForMaskedLM

    from pretrain.convert.exports.in_transformers import quiet

    folder = transformers_folder(place)
    trusted = {"trust_remote_code": True} if trust_remote_code else None
    try:
        model = ModelSettings(folder=str(folder), transformers=trusted)
    except ValidationError as error:
        raise ConfigError(explain(error, ModelSettings)) from None
    assert isinstance(model.transformers, dict)
    try:
        with quiet():
            whole, report = AutoModelForMaskedLM.from_pretrained(
                folder,
                config=configuration_of(model.transformers, model.folder),
                dtype=torch.float32,
                output_loading_info=True,
                trust_remote_code=trust_remote_code,
            )
    except Exception as error:  # of any class: its files may be anything
        line = first_line(error)
        raise ConfigError(f"{folder}: transformers cannot open the model ({line})") from None
    missing = {our_name(name, whole) for name in report["missing_keys"]}
    if encoder := sorted(name for name in missing if not name.startswith("head.")):
        raise ConfigError(f"{folder} lacks weights of its encoder: {encoder[0]}; save it again")
    tokenizer = load_tokenizer(str(folder))
    return Pretrained(
        model=model.model_copy(update={"folder": None}) if not trust_remote_code else model,
        weights={n: w for n, w in weights_of(whole).items() if n not in missing},
        text_encoder=text_encoder_of(tokenizer, special_names_beside(str(folder))),
        name=Path(place).resolve().name if Path(place).is_dir() else place.rpartition("/")[2],
        place=str(Path(place).absolute()) if Path(place).is_dir() else place,
        step=None,
        sequence_length=model.max_sequence_length,
        objective=ENCODER_ALONE if missing else DEFAULT_OBJECTIVE,
    ).checked()


def weights_of(whole: Any) -> dict[str, Tensor]:
    """Return the weights of a whole model under our names; tied ones are the encoder's."""
    found = {weight: f"encoder.base.{name}" for name, weight in whole.base_model.named_parameters()}
    for name, weight in whole.named_parameters():
        found.setdefault(weight, our_name(name, whole))
    return {name: weight.detach() for weight, name in found.items()}
