"""Read BERT or ELECTRA's discriminator as transformers saves them: weights, shape and tokenizer.

Both are `model.positions = "bert-a"` with `model.norm = "post"`, and the logits are equal. Rows of
pre-training here have one segment, for which they add row 0 of its token types at every position:
that row is added to the position table, which is exact. The second segment is not supported.
"""

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from data_prep.files.hub import connect_to_hub
from data_prep.files.quoting import quoted
from data_prep.shards.manifest import TOKENIZER_FILE
from data_prep.tokenizer.load import VOCABULARY_FILE, load_tokenizer, special_names_beside
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import REPLACED_TOKEN_DETECTION, ModelSettings, explain
from pretrain.convert.exports.hf_format import BERT_FIELDS, CONFIG_FILE
from pretrain.convert.external.external_model import ExternalModel, text_encoder_of
from pretrain.convert.hf_names import BERT, ELECTRA, STOCK_MODELS
from pretrain.convert.stock_weights import UNUSED, check_understood, weights_from_stock
from pretrain.convert.stored_weights import STORED_WEIGHTS, stored_weights, weight_files

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")

# The classes of transformers that save a model with its head, by model_type.
CLASSES = {
    BERT.model_type: "BertForMaskedLM or BertForPreTraining",
    ELECTRA.model_type: "ElectraForPreTraining",
}
SMALL_EMBEDDINGS = 128  # transformers' embedding_size where a configuration names none
# The defaults of transformers for entries that the configuration lacks.
DEFAULTS = {
    "layer_norm_epsilon": 1e-12,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "initializer_range": 0.02,
}


def is_hugging_face_folder(folder: Path) -> bool:
    """Return whether transformers has saved a model here."""
    return (folder / CONFIG_FILE).is_file() and bool(weight_files(folder))


def is_hub_name(place: str) -> bool:
    """Return whether this can be a name on the Hugging Face Hub."""
    return HUB_NAME.fullmatch(place) is not None and not Path(place).exists()


def read_transformers_model(place: str) -> ExternalModel:
    """Read a BERT with its masked-language-model head, or an ELECTRA with its discriminator's.

    Args:
        place: a folder that `save_pretrained` wrote, or a name on the Hugging Face Hub.

    Raises:
        ConfigError: there is none, a setting is not supported, or weights are missing or unknown.
        TokenizerError: its tokenizer is missing or cannot be used.
    """
    from pretrain.convert.exports.in_transformers import check_tokenizer  # takes seconds

    folder = transformers_folder(place)
    objective, model = _model_settings(folder)
    kind = STOCK_MODELS[objective]
    stored = stored_weights(folder)
    instead = f"a checkpoint of {CLASSES[kind.model_type]}"
    weights = weights_from_stock(stored, kind, model, folder, instead=instead)
    tokenizer = load_tokenizer(str(folder))
    text_encoder = text_encoder_of(tokenizer, special_names_beside(str(folder)))
    mend = (
        f"save AutoTokenizer.from_pretrained({str(folder)!r}) there, or in a copy: its "
        f"{TOKENIZER_FILE} gives the same tokens to both. If it is transformers that is wrong, "
        'correct tokenizer_config.json, for instance "do_lower_case": false'
    )
    check_tokenizer(text_encoder, model.max_sequence_length, folder, fix=mend)
    unused = [name for name in stored if name.startswith(UNUSED)]
    notes = [
        f"token types: row 0, which {kind.title} adds at every position of one segment, is now in "
        "the position table; both texts of a pair get it, the row of the second segment is left out"
    ]
    if unused:
        notes.append(f"left out, as no part of pre-training here: {', '.join(unused)}")
    name = Path(place).resolve().name if Path(place).is_dir() else place.rpartition("/")[2]
    return ExternalModel(
        model, weights, text_encoder, name, model.max_sequence_length, tuple(notes), objective
    )


def transformers_folder(place: str) -> Path:
    """Return the folder of a model, downloaded from the Hub or found in its cache.

    Raises:
        ConfigError: the Hub has none of that name, or cannot be reached.
    """
    return Path(place) if Path(place).is_dir() else _download(place)


def _model_settings(folder: Path) -> tuple[str, ModelSettings]:
    """Return the objective and the shape of a model."""
    config = read_json_object(folder / CONFIG_FILE)
    check_understood(config, folder / CONFIG_FILE)
    objective = next(
        n for n, kind in STOCK_MODELS.items() if kind.model_type == config["model_type"]
    )
    if objective == REPLACED_TOKEN_DETECTION:
        _refuse_projected_embeddings(config, folder)
    given = {ours: config.get(name, DEFAULTS.get(ours)) for ours, name in BERT_FIELDS.items()}
    try:
        return objective, ModelSettings(positions="bert-a", norm="post", **given)
    except ValidationError as error:
        raise ConfigError(f"{folder / CONFIG_FILE}: {explain(error)}") from None


def _refuse_projected_embeddings(config: dict[str, Any], folder: Path) -> None:
    embedded, width = config.get("embedding_size", SMALL_EMBEDDINGS), config.get("hidden_size")
    if embedded != width:
        raise ConfigError(
            f"{folder / CONFIG_FILE} has embedding_size={quoted(embedded)} and hidden_size="
            f"{quoted(width)}: embeddings that are projected, as ELECTRA-Small's, are not "
            "supported; give a discriminator of Base or Large"
        )


def _download(name: str) -> Path:
    """Return a folder with the files of a model on the Hugging Face Hub."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        if folder := _snapshot(name, local=True):
            return folder
        connect_to_hub()
        if folder := _snapshot(name, local=False):
            return folder
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"there is no folder {name}, and the Hugging Face Hub has no BERT or ELECTRA of that "
            f"name ({reason}); check the name, or download its files and give their folder"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"there is no folder {name}, and the Hugging Face Hub cannot be reached ({error}); "
            "download the files of the model elsewhere and give their folder"
        ) from None
    raise ConfigError(
        f"{name} on the Hugging Face Hub has no {CONFIG_FILE} with {' or '.join(STORED_WEIGHTS)}"
    )


def _snapshot(name: str, *, local: bool) -> Path | None:
    """Return the files of a model; the pickled weights only where there are no others."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    patterns = ["*.json", "vocab.txt"]
    for weights in STORED_WEIGHTS:
        stem, _, suffix = weights.partition(".")
        patterns.append(f"{stem}*.{suffix}")
        try:
            folder = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=local))
        except LocalEntryNotFoundError:
            if local:
                return None
            raise
        if is_hugging_face_folder(folder) and (not local or _is_whole(folder)):
            return folder
    return None


def _is_whole(folder: Path) -> bool:
    """Return whether the tokenizer is there too: transformers downloads it separately."""
    has_tokenizer = any((folder / name).is_file() for name in (TOKENIZER_FILE, VOCABULARY_FILE))
    return has_tokenizer and all(file.is_file() for file in weight_files(folder))
