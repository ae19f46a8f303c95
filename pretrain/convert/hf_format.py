"""The files of an exported model, which Hugging Face's transformers loads and `read_export` reads.

config.json          shape and variant; transformers ignores its entry "tupelo", an `ExportRecord`
model.safetensors    of a `BertForMaskedLM`, or of a `TupeloForMaskedLM` with the trainer's names
*.py                 the code of the latter
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from data_prep.files.atomic import save_text
from data_prep.files.quoting import plain
from data_prep.shards.manifest import TOKENIZER_FILE, TokenizerRecord
from data_prep.tokenizer.describe import check_described
from data_prep.tokenizer.load import load_tokenizer
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import ModelSettings, explain
from pretrain.convert.hf_names import TOKEN_TYPES, bert_names, from_bert, to_bert
from pretrain.convert.text_encoder import TextEncoder
from pretrain.convert.weight_checks import check_shapes, check_weights, shapes_of

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
ROOT = Path(__file__).parents[1]
CODE_FILES = {  # in the export
    "configuration_tupelo.py": ROOT / "convert" / "hf_code" / "configuration_tupelo.py",
    "modeling_tupelo.py": ROOT / "convert" / "hf_code" / "modeling_tupelo.py",
    "positions.py": ROOT / "model" / "positions.py",
    "position_baselines.py": ROOT / "model" / "position_baselines.py",
    "position_encoding.py": ROOT / "model" / "position_encoding.py",
    "position_tables.py": ROOT / "model" / "position_tables.py",
    "torch_attention.py": ROOT / "model" / "torch_attention.py",
}
# How its files, some of them the trainer's, name one another.
TRAINERS_IMPORT, EXPORTS_IMPORT = "from pretrain.model.", "from ."
RECORD = "tupelo"  # entry of config.json; transformers keeps unknown entries

# Field of ModelSettings -> name in config.json, for BERT and for TupeloConfig.
BERT_FIELDS = {
    "num_layers": "num_hidden_layers",
    "width": "hidden_size",
    "num_heads": "num_attention_heads",
    "feedforward_width": "intermediate_size",
    "vocabulary_size": "vocab_size",
    "max_sequence_length": "max_position_embeddings",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
}
TUPELO_FIELDS = BERT_FIELDS | {
    name: name
    for name in (
        "positions",
        "cls_reset",
        "position_projection_bias",
        "norm",
        "relative_buckets",
        "relative_max_distance",
        "relative_clip",
    )
}
# Exports that were written before it existed have its default.
ADDED_FIELDS = {"relative_clip"}


class ExportRecord(BaseModel):
    """Facts about an exported model that transformers has no entry for."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    step: int | None = Field(ge=0)
    sequence_length: int = Field(ge=3)
    tokenizer: TokenizerRecord
    vocabulary: str  # `TextEncoder.fingerprint`
    run: str | None = None  # `identity_of` the run; None: unknown, or not a run


class Exported(NamedTuple):
    """An exported model that was read back."""

    model: ModelSettings
    weights: dict[str, Tensor]
    text_encoder: TextEncoder
    record: ExportRecord


def is_stock_bert(model: ModelSettings) -> bool:
    """Return whether Hugging Face's own BERT is the same model."""
    return model.positions == "bert-a" and model.norm == "post"


def write_model(
    folder: Path, model: ModelSettings, weights: dict[str, Tensor], record: ExportRecord
) -> None:
    """Write the configuration, the weights, and code if transformers has none."""
    save_text(folder / CONFIG_FILE, json.dumps(configuration(model, record), indent=2) + "\n")
    if is_stock_bert(model):
        weights = to_bert(weights, model.num_layers)
        weights[TOKEN_TYPES] = torch.zeros(2, model.width)
    else:
        for name, file in CODE_FILES.items():
            save_text(folder / name, file.read_text().replace(TRAINERS_IMPORT, EXPORTS_IMPORT))
    whole = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_file(whole, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    # safetensors makes its files readable by the owner only.
    (folder / WEIGHTS_FILE).chmod((folder / CONFIG_FILE).stat().st_mode)


def configuration(model: ModelSettings, record: ExportRecord) -> dict[str, Any]:
    """Return the content of config.json."""
    stock, settings = is_stock_bert(model), model.model_dump()
    kind: dict[str, Any] = {
        "model_type": "tupelo",
        "architectures": ["TupeloForMaskedLM"],
        "auto_map": {
            "AutoConfig": "configuration_tupelo.TupeloConfig",
            "AutoModel": "modeling_tupelo.TupeloModel",
            "AutoModelForMaskedLM": "modeling_tupelo.TupeloForMaskedLM",
            "AutoModelForSequenceClassification": "modeling_tupelo.TupeloForSequenceClassification",
        },
    }
    if stock:
        kind = {
            "model_type": "bert",
            "architectures": ["BertForMaskedLM"],
            "hidden_act": "gelu",
            "position_embedding_type": "absolute",
            "type_vocab_size": 2,
        }
    fields = BERT_FIELDS if stock else TUPELO_FIELDS
    return {
        **kind,
        **{theirs: settings[ours] for ours, theirs in fields.items()},
        "pad_token_id": record.tokenizer.special_tokens.get("pad"),
        RECORD: record.model_dump(mode="json"),
    }


def is_export(folder: Path) -> bool:
    """Return whether the folder holds a model that was exported here."""
    file = folder / CONFIG_FILE
    return file.is_file() and RECORD in read_json_object(file)


def read_export(folder: Path) -> Exported:
    """Read an exported model, also one that transformers has saved again.

    Raises:
        ConfigError: the configuration or the weights are missing or damaged, or the tokenizer is
            that of another model.
        TokenizerError: the tokenizer is missing or damaged.
    """
    content = read_json_object(folder / CONFIG_FILE)
    stock = content.get("model_type") == "bert"
    fields = BERT_FIELDS if stock else TUPELO_FIELDS
    expected = [*(theirs for theirs in fields.values() if theirs not in ADDED_FIELDS), RECORD]
    missing = [theirs for theirs in expected if theirs not in content]
    if missing:
        raise ConfigError(f"{folder / CONFIG_FILE} lacks {', '.join(missing)}; export again")
    values = {ours: content[theirs] for ours, theirs in fields.items() if theirs in content}
    if stock:
        values |= {"positions": "bert-a", "norm": "post"}
    try:
        model = ModelSettings(**values)
        record = ExportRecord.model_validate_json(json.dumps(content[RECORD]))
        stored = load_file(folder / WEIGHTS_FILE)
        if stock:
            check_bert_shapes(stored, model, place=str(folder / WEIGHTS_FILE))
        else:
            check_weights(stored, model, place=str(folder))
        weights = from_bert(stored, model.num_layers) if stock else stored
    except ValidationError as error:
        raise ConfigError(f"{folder / CONFIG_FILE}: {explain(error)}; export again") from None
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{folder / WEIGHTS_FILE} cannot be read: {plain(str(error))}") from None
    except KeyError as error:
        raise ConfigError(f"{folder / WEIGHTS_FILE} lacks {error}: it has another head") from None
    tokenizer = load_tokenizer(str(folder / TOKENIZER_FILE))
    text_encoder = TextEncoder(tokenizer, record.tokenizer)
    if text_encoder.fingerprint() != record.vocabulary:
        raise ConfigError(
            f"{folder / TOKENIZER_FILE} is not the tokenizer that this model was trained with: the "
            "ids of its entries differ; export again"
        )
    check_described(tokenizer, record.tokenizer, folder / TOKENIZER_FILE)
    return Exported(
        model=model,
        weights={name: tensor.float() for name, tensor in weights.items()},
        text_encoder=text_encoder,
        record=record,
    )


def check_bert_shapes(stored: Mapping[str, Tensor], model: ModelSettings, *, place: str) -> None:
    """Check the shapes of BERT's weights under BERT's names.

    Raises:
        ConfigError: a shape differs; names the weight.
        KeyError: one is missing.
    """
    missing = [
        n for names in bert_names(model.num_layers).values() for n in names if n not in stored
    ]
    if missing:
        raise KeyError(missing[0])
    expected = to_bert(shapes_of(model), model.num_layers)
    check_shapes(stored, expected, expected, place=place)
    if TOKEN_TYPES in stored:
        rows = stored[TOKEN_TYPES].shape[:1]
        table = {TOKEN_TYPES: torch.empty(*rows, model.width, device="meta")}
        if not any(rows):
            raise ConfigError(f"{place}: {TOKEN_TYPES} has no row")
        check_shapes(stored, table, table, place=place)
