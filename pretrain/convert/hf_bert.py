"""Read BERT as Hugging Face's transformers saves it: weights, shape and tokenizer.

It is `model.positions = "bert-a"` with `model.norm = "post"`, and the logits are equal. Rows of
pre-training here have one segment, for which BERT adds row 0 of its token types at every position:
that row is added to the position table, which is exact. The second segment is not supported.
"""

import re
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from data_prep.files.hub import connect_to_hub
from data_prep.files.quoting import plain, quoted
from data_prep.shards.manifest import TOKENIZER_FILE
from data_prep.tokenizer.load import VOCABULARY_FILE, load_tokenizer, special_names_beside
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import ModelSettings, explain
from pretrain.convert.external import UNREADABLE, ExternalModel, describe_names, text_encoder_of
from pretrain.convert.hf_format import BERT_FIELDS, CONFIG_FILE, WEIGHTS_FILE, check_bert_shapes
from pretrain.convert.hf_names import TOKEN_TYPES, bert_names, from_bert
from pretrain.convert.weight_checks import named_tensors

STORED_WEIGHTS = (WEIGHTS_FILE, "pytorch_model.bin")  # in the order of preference
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")

# Of BertForPreTraining and of fine-tuned models: no part of masked language modelling.
UNUSED = (
    "bert.pooler.",
    "bert.embeddings.position_ids",
    "cls.seq_relationship.",
    "classifier.",
    "qa_outputs.",
)
TIED = "cls.predictions.decoder.weight"
# The defaults of transformers for entries that the configuration lacks.
DEFAULTS = {
    "layer_norm_epsilon": 1e-12,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "initializer_range": 0.02,
}
# Entry of the configuration -> its supported values.
UNDERSTOOD: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "hidden_act": ("gelu", "gelu_python"),  # by the error function, both
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}


def is_hugging_face_folder(folder: Path) -> bool:
    """Return whether transformers has saved a model here."""
    return (folder / CONFIG_FILE).is_file() and bool(_weight_files(folder))


def is_hub_name(place: str) -> bool:
    """Return whether this can be a name on the Hugging Face Hub."""
    return HUB_NAME.fullmatch(place) is not None and not Path(place).exists()


def read_bert(place: str) -> ExternalModel:
    """Read a BERT with its masked-language-model head.

    Args:
        place: a folder that `save_pretrained` wrote, or a name on the Hugging Face Hub.

    Raises:
        ConfigError: there is none, a setting is not supported, or weights are missing or unknown.
        TokenizerError: its tokenizer is missing or cannot be used.
    """
    folder = bert_folder(place)
    model = _model_settings(folder)
    stored = _with_modern_names(_stored_weights(folder), folder)
    weights = _our_weights(stored, model, folder)
    tokenizer = load_tokenizer(str(folder))
    text_encoder = text_encoder_of(tokenizer, special_names_beside(str(folder)))
    unused = [name for name in stored if name.startswith(UNUSED)]
    notes = [
        "token types: row 0, which BERT adds at every position of one segment, is now in the "
        "position table; both texts of a pair get it, the row of the second segment is left out"
    ]
    if unused:
        notes.append(f"left out, as no part of masked language modelling: {', '.join(unused)}")
    name = Path(place).resolve().name if Path(place).is_dir() else place.rpartition("/")[2]
    return ExternalModel(
        model, weights, text_encoder, name, model.max_sequence_length, tuple(notes)
    )


def bert_folder(place: str) -> Path:
    """Return the folder of a BERT, downloaded from the Hub or found in its cache.

    Raises:
        ConfigError: the Hub has none of that name, or cannot be reached.
    """
    return Path(place) if Path(place).is_dir() else _download(place)


def _model_settings(folder: Path) -> ModelSettings:
    config = read_json_object(folder / CONFIG_FILE)
    for name, values in UNDERSTOOD.items():
        if config.get(name) not in values:
            raise ConfigError(
                f"{folder / CONFIG_FILE} has {name}={quoted(config.get(name))}; supported is BERT "
                f"with {name}={values[0]!r}"
            )
    given = {ours: config.get(name, DEFAULTS.get(ours)) for ours, name in BERT_FIELDS.items()}
    try:
        return ModelSettings(positions="bert-a", norm="post", **given)
    except ValidationError as error:
        raise ConfigError(f"{folder / CONFIG_FILE}: {explain(error)}") from None


def _our_weights(
    stored: dict[str, Tensor], model: ModelSettings, folder: Path
) -> dict[str, Tensor]:
    expected = {name for names in bert_names(model.num_layers).values() for name in names}
    missing = sorted((expected | {TOKEN_TYPES}) - stored.keys())
    heads = [name for name in missing if name.startswith("cls.")]
    if heads and heads == missing:
        raise ConfigError(
            f"{folder} has no masked-language-model head ({describe_names(heads)} missing), which "
            "pre-training needs; give a checkpoint of BertForMaskedLM or BertForPreTraining"
        )
    if missing:
        raise ConfigError(
            f"{folder} is no complete BERT of {model.num_layers} layers: it lacks "
            f"{describe_names(missing)}"
        )
    known = expected | {TOKEN_TYPES, TIED}
    unknown = sorted(name for name in stored.keys() - known if not name.startswith(UNUSED))
    if unknown:
        raise ConfigError(
            f"{folder} has weights that BERT with {model.num_layers} layers does not have: "
            f"{describe_names(unknown)}; the model here has no place for them"
        )
    if TIED in stored and not torch.equal(
        stored[TIED], stored["bert.embeddings.word_embeddings.weight"]
    ):
        raise ConfigError(f"{folder}: {TIED} differs from the word embeddings; here they are tied")
    check_bert_shapes(stored, model, place=str(folder))
    used = expected | {TOKEN_TYPES}
    return from_bert({name: stored[name].float() for name in used}, model.num_layers)


def _with_modern_names(stored: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    renamed: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        modern = _modern_name(name)
        if not torch.equal(renamed.setdefault(modern, tensor), tensor):
            raise ConfigError(f"{folder}: two weights are {modern}, as {name} is, and they differ")
    return renamed


def _modern_name(name: str) -> str:
    """Return the name in today's BertForMaskedLM: checkpoints of 2018 have gamma and beta."""
    if name.endswith(".gamma"):
        name = name.removesuffix("gamma") + "weight"
    elif name.endswith(".beta"):
        name = name.removesuffix("beta") + "bias"
    if name == "cls.predictions.decoder.bias":
        return "cls.predictions.bias"
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        return f"bert.{name}"
    return name


def _weight_files(folder: Path) -> list[Path]:
    """Return the files of the weights, safetensors first; none where there are none."""
    for name in STORED_WEIGHTS:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _parts_in(index)
    return []


def _parts_in(index: Path) -> list[Path]:
    """Return the files that an index names, all of them beside it."""
    try:
        weight_map = read_json_object(index).get("weight_map")
    except ConfigError:
        weight_map = None
    parts = set(map(str, weight_map.values())) if isinstance(weight_map, dict) else set()
    if not parts:
        raise ConfigError(f"{index} is damaged: not JSON with a weight_map; download it again")
    for part in parts:
        if "/" in part or part in (".", "..") or not part.isprintable():
            raise ConfigError(
                f"{index} is damaged: {quoted(part)} is not the name of a file beside it; download "
                "it again"
            )
    return [index.with_name(part) for part in sorted(parts)]


def _stored_weights(folder: Path) -> dict[str, Tensor]:
    stored: dict[str, Tensor] = {}
    for file in _weight_files(folder):
        try:
            if file.suffix == ".safetensors":
                content: Any = load_file(file)
            else:
                content = torch.load(file, map_location="cpu", weights_only=True)
        except (SafetensorError, *UNREADABLE) as error:
            reason = plain(str(error).partition("\n")[0])
            raise ConfigError(
                f"{file} is damaged, or no file of weights ({reason}); download it again"
            ) from None
        stored |= named_tensors(content, place=str(file))
    return stored


def _download(name: str) -> Path:
    """Return a folder with the files of a model on the Hugging Face Hub."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return _snapshot(name, local=True) or _snapshot_of_the_hub(name)
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"there is no folder {name}, and the Hugging Face Hub has no BERT of that name "
            f"({reason}); check the name, or download its files and give their folder"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"there is no folder {name}, and the Hugging Face Hub cannot be reached ({error}); "
            "download the files of the model elsewhere and give their folder"
        ) from None


def _snapshot_of_the_hub(name: str) -> Path:
    connect_to_hub()
    folder = _snapshot(name, local=False)
    if folder is None:
        raise ConfigError(
            f"{name} on the Hugging Face Hub has no {CONFIG_FILE} with "
            f"{' or '.join(STORED_WEIGHTS)}"
        )
    return folder


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
    return has_tokenizer and all(file.is_file() for file in _weight_files(folder))
