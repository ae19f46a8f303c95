"""The files of an exported model, which Hugging Face's transformers loads and `read_export` reads.

config.json          shape and variant; transformers ignores its entry "tupelo", an `ExportRecord`
model.safetensors    of a `BertForMaskedLM` or an `ElectraForPreTraining`, or of a
                     `TupeloForMaskedLM` or a `TupeloForPreTraining` with the trainer's names
*.py                 the code of the latter
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from data_prep.files.atomic import save_text
from data_prep.shards.manifest import TOKENIZER_FILE, TokenizerRecord
from data_prep.text.text_encoder import TextEncoder
from data_prep.tokenizer.load import load_tokenizer
from pretrain.checkpoint.format import save_tensors
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import (
    DEFAULT_OBJECTIVE,
    REPLACED_TOKEN_DETECTION,
    EncodingSettings,
    ModelSettings,
    explained,
)
from pretrain.config.settings.transformers_config import CONFIG_FILE as CONFIG_FILE
from pretrain.config.settings.transformers_config import FIELDS
from pretrain.convert.model import Pretrained, restored_network, without_generator
from pretrain.convert.stock_models import (
    ELECTRA,
    STOCK_MODELS,
    StockModel,
    from_stock,
    stock_model,
    stock_objective,
    to_stock,
)
from pretrain.convert.weights import WEIGHTS_FILE, stored_weights
from pretrain.distributed.deepspeed_library import import_deepspeed

TOKENIZER_CLASS = "PreTrainedTokenizerFast"
OWN_CODE = Path(__file__).parent / "hf_code"
TRAINERS_CODE = Path(__file__).parents[2] / "model"
CODE_FILES = {  # name in the export -> file
    name: (OWN_CODE if name.endswith("_tupelo.py") else TRAINERS_CODE) / name
    for name in (
        *("configuration_tupelo.py", "modeling_tupelo.py", "attention.py", "torch_attention.py"),
        *("blocks.py", "heads.py", "positions.py", "position_baselines.py"),
        *("position_encoding.py", "position_tables.py"),
    )
}
# Of which the code has a class.
TASKS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
TYPE, RECORD = "model_type", "tupelo"  # entries of config.json; transformers keeps unknown entries

# Field of ModelSettings -> name in config.json, for BERT, for ELECTRA, and for TupeloConfig.
BERT_FIELDS = {name: theirs[0] for name, theirs in FIELDS.items()}
TUPELO_FIELDS = BERT_FIELDS | {
    name: name for name in ("positions", "norm", *EncodingSettings.model_fields)
}


class ExportRecord(BaseModel):
    """Facts about an exported model that transformers has no entry for."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: str
    step: int | None = Field(ge=0)
    sequence_length: int = Field(ge=3)
    tokenizer: TokenizerRecord
    vocabulary: str  # `TextEncoder.fingerprint`
    objective: str = DEFAULT_OBJECTIVE


def write_pretrained(folder: Path, pretrained: Pretrained) -> None:
    """Write a pre-trained model; of ELECTRA the discriminator, as nobody fine-tunes a generator."""
    if isinstance(config := pretrained.model.transformers, dict):
        from pretrain.convert.exports.in_transformers import quiet  # takes seconds

        if pretrained.model.positions != "own":
            raise ConfigError(
                f"{pretrained.name} has attached positions, which no model of transformers has; "
                "use it by tupelo.load, or train with --model.positions own"
            )
        network: Any = restored_network(pretrained)
        import_deepspeed()  # transformers does, with its log output
        with quiet():
            network.encoder.whole.save_pretrained(folder)
        for file in folder.glob("*.safetensors"):  # readable by the owner only
            file.chmod(folder.stat().st_mode & 0o666)
        length, encoder = pretrained.sequence_length, pretrained.text_encoder
        has_types = (config.get("type_vocab_size") or 0) > 1
        write_tokenizer(folder, encoder, sequence_length=length, with_token_types=has_types)
        return
    record = ExportRecord(
        name=pretrained.name,
        step=pretrained.step,
        sequence_length=pretrained.sequence_length,
        tokenizer=pretrained.text_encoder.record,
        vocabulary=pretrained.text_encoder.fingerprint(),
        objective=pretrained.objective,
    )
    write_folder(
        folder,
        configuration(pretrained.model, record),
        without_generator(pretrained.weights),
        stock_model(pretrained.model, pretrained.objective),
        pretrained.text_encoder,
        sequence_length=record.sequence_length,
    )


def write_folder(
    folder: Path,
    content: Mapping[str, Any],
    weights: dict[str, Tensor],
    stock: StockModel | None,
    text_encoder: TextEncoder,
    *,
    sequence_length: int,
) -> None:
    """Write the configuration, the weights, the tokenizer, and code if transformers has none.

    `weights` have our names, `stock` is the model of transformers that is the same, and rows are
    cut to `sequence_length` by the tokenizer.
    """
    save_text(folder / CONFIG_FILE, json.dumps(content, indent=2) + "\n")
    if stock is not None:
        weights = to_stock(weights, stock, content["num_hidden_layers"])
    elif content[TYPE] == "tupelo":
        for name, file in CODE_FILES.items():
            code = file.read_text(encoding="utf-8").replace("from pretrain.model.", "from .")
            save_text(folder / name, code)
    whole = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_tensors(whole, folder / WEIGHTS_FILE, {"format": "pt"})
    # What was fine-tuned here has one segment: further training in transformers keeps to it.
    types = stock is not None and RECORD in content
    write_tokenizer(folder, text_encoder, sequence_length=sequence_length, with_token_types=types)


def write_tokenizer(
    folder: Path, text_encoder: TextEncoder, *, sequence_length: int, with_token_types: bool
) -> None:
    """Write the files of transformers' AutoTokenizer, see `TextEncoder.exported`.

    truncation=True cuts rows to `sequence_length`. BERT and ELECTRA take token types.
    """
    tokenizer = text_encoder.exported()
    save_text(folder / TOKENIZER_FILE, tokenizer.to_str(pretty=True) + "\n")
    names = {
        f"{role}_token": text_encoder.tokenizer.id_to_token(number)
        for role, number in text_encoder.special.items()
    }
    inputs = ["input_ids", *["token_type_ids"] * with_token_types, "attention_mask"]
    config: dict[str, Any] = {
        "tokenizer_class": TOKENIZER_CLASS,
        "model_max_length": sequence_length,
        "model_input_names": inputs,
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        **names,
    }
    save_text(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")


def configuration(model: ModelSettings, record: ExportRecord) -> dict[str, Any]:
    """Return the content of config.json."""
    stock, settings = stock_model(model, record.objective), model.model_dump()
    own = "PreTraining" if record.objective == REPLACED_TOKEN_DETECTION else "MaskedLM"
    kind: dict[str, Any] = {
        "model_type": "tupelo",
        "architectures": [f"TupeloFor{own}"],
        "auto_map": {
            "AutoConfig": "configuration_tupelo.TupeloConfig",
            "AutoModel": "modeling_tupelo.TupeloModel",
            **{f"AutoModelFor{task}": f"modeling_tupelo.TupeloFor{task}" for task in (own, *TASKS)},
        },
        "tokenizer_class": TOKENIZER_CLASS,  # transformers 4 asks here when a pipeline is made
    }
    if stock is not None:
        kind = {
            "model_type": stock.model_type,
            "architectures": [stock.architecture],
            "hidden_act": "gelu",
            "position_embedding_type": "absolute",
            "type_vocab_size": 2,
        }
    if stock is ELECTRA:
        kind["embedding_size"] = model.width
    fields = BERT_FIELDS if stock else TUPELO_FIELDS
    return {
        **kind,
        **{theirs: settings[ours] for ours, theirs in fields.items()},
        "pad_token_id": record.tokenizer.special_tokens.get("pad"),
        RECORD: record.model_dump(mode="json"),
    }


def is_export(folder: Path) -> bool:
    """Return whether the folder holds a model that was exported here, with its head."""
    file = folder / CONFIG_FILE
    content = read_json_object(file) if file.is_file() else {}
    heads = re.search("MaskedLM|PreTraining", str(content.get("architectures")))
    return RECORD in content and heads is not None


def read_export(folder: Path) -> Pretrained:
    """Read an exported model, also one that transformers has saved again.

    Raises:
        ConfigError: the configuration or the weights are missing or damaged, or the tokenizer is
            that of another model.
        TokenizerError: the tokenizer is missing or damaged.
    """
    file = folder / CONFIG_FILE
    content = read_json_object(file)
    kind = STOCK_MODELS.get(stock_objective(content) or "")
    if kind is None and content.get(TYPE) != "tupelo":
        raise ConfigError(f"{file} describes another model than was exported; export again")
    fields = BERT_FIELDS if kind else TUPELO_FIELDS
    values = {ours: content[theirs] for ours, theirs in fields.items() if theirs in content}
    if kind:
        values |= {"positions": "bert-a", "norm": "post"}
    with explained(f"{file}: ", end="; export again"):
        model = ModelSettings(**values)
        record = ExportRecord.model_validate_json(json.dumps(content[RECORD]))
    weights, text_encoder = read_folder(folder, record, kind, model.num_layers, fix="export again")
    return Pretrained(
        model=model,
        weights=weights,
        text_encoder=text_encoder,
        name=record.name,
        place=str(folder),
        step=record.step,
        sequence_length=record.sequence_length,
        objective=record.objective,
    ).checked()


def read_folder(
    folder: Path, record: ExportRecord, stock: StockModel | None, num_layers: int, *, fix: str
) -> tuple[dict[str, Tensor], TextEncoder]:
    """Return the weights, under our names in fp32, and the text encoder of a folder.

    The weights have the names of the model `stock` of transformers; None: they have ours. `fix` is
    what to do if a file is missing or another one.

    Raises:
        ConfigError: the weights are missing or damaged, or the tokenizer is that of another model.
        TokenizerError: the tokenizer is missing or damaged.
    """
    weights = stored_weights(folder)
    if not weights:
        raise ConfigError(f"{folder / WEIGHTS_FILE} is missing; {fix}")
    if stock is not None:
        weights = from_stock(weights, stock, num_layers)
    file = folder / TOKENIZER_FILE
    text_encoder = TextEncoder(load_tokenizer(str(file)), record.tokenizer)
    if text_encoder.fingerprint() != record.vocabulary:
        raise ConfigError(
            f"{file} is not the tokenizer that this model was trained with: the ids of its entries "
            f"differ; {fix}"
        )
    return weights, text_encoder
