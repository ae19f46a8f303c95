"""The configuration of a model of transformers, read into and out of the settings of a run."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_prep.files.quoting import first_line, quoted
from data_prep.removed import nearest

CONFIG_FILE = "config.json"
# Setting of ours -> names in configurations of transformers; of several, all are set.
FIELDS: dict[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers",),
    "width": ("hidden_size",),
    "num_heads": ("num_attention_heads",),
    "feedforward_width": ("intermediate_size", "hidden_dim"),
    "vocabulary_size": ("vocab_size",),
    "max_sequence_length": ("max_position_embeddings",),
    "dropout": ("hidden_dropout_prob", "dropout", "mlp_dropout", "embedding_dropout"),
    "attention_dropout": ("attention_probs_dropout_prob", "attention_dropout"),
    "layer_norm_epsilon": ("layer_norm_eps", "norm_eps"),
    "initializer_range": ("initializer_range",),
}
# What a model that exists may be given anew.
FREE = ("dropout", "attention_dropout")
# Types whose position table begins with rows that no token takes: those up to padding's.
OFFSET_BY_PADDING = (
    *("camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mpnet", "roberta"),
    *("roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
)
# Entries that say nothing of the model, and differ between versions and places.
LEFT_OUT = (
    *("_name_or_path", "architectures", "dtype", "transformers_version"),
    *("id2label", "label2id", "problem_type", "tupelo_fine_tuned"),  # those of a classifier
    "tupelo",  # that of the run it comes from, which this one goes on from
)
SPECIAL_IDS = tuple(f"{role}_token_id" for role in ("pad", "bos", "eos", "cls", "sep"))


def with_configuration(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a model with the configuration that they name, and its shape.

    Args:
        values: of `model.*`, as given: with `folder`, `transformers` or neither.

    Raises:
        ValueError: there is no such configuration, or only with code of the folder, which is not
            trusted; or a setting is not that of the folder.
    """
    folder, kind = values.get("folder"), values.get("transformers")
    if folder is None and kind is None:
        return values
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    if folder is not None and isinstance(kind, str):
        raise ValueError("model.folder and model.transformers both name a model; give one")
    config = _read(folder, kind)
    if config.model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not trusts_code(kind):
        raise ValueError(f"a {config.model_type} has no head for masked words in transformers")
    filled, changes = {"positions": "own", **values}, dict[str, Any]()
    for name, theirs in FIELDS.items():
        known = [one for one in theirs if hasattr(config, one)]
        if not known:  # a value of ours is refused later, where it is not the default
            continue
        is_offset = name == "max_sequence_length" and config.model_type in OFFSET_BY_PADDING
        reserved = (config.pad_token_id or 0) + 1 if is_offset else 0
        before = getattr(config, known[0])
        filled[name] = now = before - reserved if reserved else before
        if name in values and (given := _number(values[name])) != now:
            if folder is not None and name not in FREE:
                raise ValueError(
                    f"model.{name}={given}, but {folder} has {now}: it is trained as it is; remove "
                    "the setting"
                )
            filled[name] = given
            if isinstance(given, int | float):
                changes |= dict.fromkeys(known, given + reserved)
    content = json.loads(_changed(config, changes, kind).to_json_string(use_diff=False))
    content = {name: value for name, value in content.items() if name not in LEFT_OUT}
    return {**filled, "transformers": content}


def trusts_code(config: Any) -> bool:
    """Return whether `model.transformers` says that code of the folder may run."""
    return isinstance(config, dict) and config.get("trust_remote_code") is True


def configuration_of(config: Mapping[str, Any], folder: str | None = None) -> Any:
    """Return the configuration as an object of transformers.

    Args:
        config: content of `model.transformers`.
        folder: whose code defines its class; None: transformers does.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    if config["model_type"] in CONFIG_MAPPING:
        return CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    own = AutoConfig.from_pretrained(folder, trust_remote_code=trusts_code(config))
    return type(own).from_dict(dict(config), _name_or_path=folder)


def with_special_ids(config: Mapping[str, Any], special: Mapping[Any, int]) -> dict[str, Any]:
    """Return a configuration whose special tokens are those of a tokenizer, by role.

    RoBERTa counts positions by the id of padding, and embeddings of padding are zeros.
    """
    ids = {"pad": special.get("pad"), "bos": special["cls"], "eos": special["sep"], **special}
    changed = {name: ids[name[:3]] for name in SPECIAL_IDS if name in config}
    if config["model_type"] in OFFSET_BY_PADDING:
        moved = (changed["pad_token_id"] or 0) - (config["pad_token_id"] or 0)
        changed["max_position_embeddings"] = config["max_position_embeddings"] + moved
    return {**config, **changed}


def _read(folder: str | None, kind: Any) -> Any:
    """Return the configuration in a folder, of a type, or in a file; or as it was read before."""
    from transformers import CONFIG_MAPPING, AutoConfig

    is_stored = isinstance(kind, dict) and "model_type" in kind
    if folder is None and isinstance(kind, str) and kind in CONFIG_MAPPING:
        return _new(CONFIG_MAPPING[kind])
    if folder is None and not is_stored and not (isinstance(kind, str) and Path(kind).exists()):
        near = nearest(str(kind), list(CONFIG_MAPPING))
        raise ValueError(f"model.transformers={quoted(kind)} is no type or config.json{near}")
    place, trusts = folder or kind, trusts_code(kind)
    try:
        if is_stored:
            return configuration_of(kind, folder)
        config = AutoConfig.from_pretrained(place, trust_remote_code=trusts)
    except Exception as error:  # of any class: the file may hold anything
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"{place} is no model of transformers but of code in its folder; read that code, "
                "and give --trust-remote-code to run it"
            ) from None
        line = f"transformers cannot open it ({first_line(error)})"
        if Path(str(place), "run.json").is_file():
            line = f"a run of Tupelo; go on from it with --initial_weights {place}, or export it"
        elif not Path(str(place)).exists():
            line = "there is no such folder" + ("" if str(place)[0] in "./" else f", and {line}")
        raise ValueError(f"{quoted(place)}: {line}") from None
    if trusts:
        config.trust_remote_code = True
    return config


def _new(kind: Any, **changes: Any) -> Any:
    """Return a new configuration; the ids of a tokenizer are set when it is known."""
    default = kind()
    changes |= {name: 0 for name in SPECIAL_IDS if hasattr(default, name)}
    if default.model_type in OFFSET_BY_PADDING:
        changes.setdefault("max_position_embeddings", default.max_position_embeddings + 1)
    return kind(**changes)


def _changed(config: Any, changes: dict[str, Any], kind: Any) -> Any:
    """Return a configuration with other values; a new one derives further ones from them."""
    try:
        if kind == config.model_type:
            return _new(type(config), **changes)
        for name, value in changes.items():
            setattr(config, name, value)
    except Exception as error:  # of any class
        line = str(error).strip().replace("\n", " ")
        raise ValueError(f"a {config.model_type} cannot be of this shape: {line}") from None
    return config


def _number(value: Any) -> Any:
    """Return a number, which the command line may give as text."""
    for read in (json.loads, int, float):
        with contextlib.suppress(ValueError):
            return read(str(value))
    return value  # pydantic reports it by name
