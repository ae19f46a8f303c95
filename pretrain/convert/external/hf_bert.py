"""Read BERT or ELECTRA's discriminator as transformers saves them: weights, shape and tokenizer.

Both are `model.positions = "bert-a"` with `model.norm = "post"`, and the logits are equal. Rows of
pre-training here have one segment, for which they add row 0 of its token types at every position:
that row is added to the position table, which is exact. The second segment is not supported.
"""

import contextlib
import re
from pathlib import Path

from pydantic import ValidationError

from data_prep.files.hub import connect_to_hub, reason_of
from data_prep.shards.manifest import TOKENIZER_FILE
from data_prep.text.text_encoder import text_encoder_of
from data_prep.tokenizer.load import load_tokenizer, special_names_beside
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import ModelSettings, explain
from pretrain.convert.exports.hf_format import BERT_FIELDS, CONFIG_FILE
from pretrain.convert.model import Pretrained
from pretrain.convert.stock_models import STOCK_MODELS, check_understood, from_stock
from pretrain.convert.weights import STORED_WEIGHTS, stored_weights, weight_files

TOKENIZER_FILES = (TOKENIZER_FILE, "vocab.*", "merges.txt", "*.model")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def is_hugging_face_folder(folder: Path) -> bool:
    """Return whether transformers has saved a model here."""
    return (folder / CONFIG_FILE).is_file() and bool(weight_files(folder))


def is_hub_name(place: str) -> bool:
    """Return whether this can be a name on the Hugging Face Hub."""
    return HUB_NAME.fullmatch(place) is not None and not Path(place).exists()


def read_transformers_model(place: str) -> Pretrained:
    """Read a BERT with its masked-language-model head, or an ELECTRA with its discriminator's.

    Args:
        place: a folder that `save_pretrained` wrote, or a name on the Hugging Face Hub.

    Raises:
        ConfigError: there is none, a setting is not supported, or weights are missing or unknown.
        TokenizerError: its tokenizer is missing or cannot be used.
    """
    from pretrain.convert.exports.in_transformers import check_tokenizer  # takes seconds

    folder = transformers_folder(place)
    file = folder / CONFIG_FILE
    config = read_json_object(file)
    check_understood(config, file)
    kinds = STOCK_MODELS.items()
    objective = next(name for name, one in kinds if one.model_type == config["model_type"])
    kind = STOCK_MODELS[objective]
    # Of entries that it lacks, the defaults here are those of transformers.
    given = {ours: config[name] for ours, name in BERT_FIELDS.items() if name in config}
    try:
        model = ModelSettings(positions="bert-a", norm="post", **given)
    except ValidationError as error:
        raise ConfigError(f"{file}: {explain(error)}") from None
    is_folder = Path(place).is_dir()
    pretrained = Pretrained(
        model=model,
        weights=from_stock(stored_weights(folder), kind, model.num_layers, folder),
        text_encoder=text_encoder_of(
            load_tokenizer(str(folder)), special_names_beside(str(folder))
        ),
        name=Path(place).resolve().name if is_folder else place.rpartition("/")[2],
        place=str(folder.absolute()) if is_folder else place,
        step=None,
        sequence_length=model.max_sequence_length,
        objective=objective,
    ).checked()
    fix = (
        f"save AutoTokenizer.from_pretrained({str(folder)!r}) there, or in a copy: its "
        f"{TOKENIZER_FILE} gives the same tokens to both. If it is transformers that is wrong, "
        'correct tokenizer_config.json, for instance "do_lower_case": false'
    )
    check_tokenizer(pretrained, folder, num_random=0, fix=fix)
    return pretrained


def transformers_folder(place: str) -> Path:
    """Return the folder of a model; one of the Hub is found in its cache, or downloaded.

    Raises:
        ConfigError: the Hub has none of that name, or cannot be reached.
    """
    if Path(place).is_dir():
        return Path(place)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        with contextlib.suppress(LocalEntryNotFoundError):
            folder = Path(snapshot_download(place, local_files_only=True))
            files = weight_files(folder)  # some of several are absent if a download was stopped
            # Another program may have loaded the weights alone.
            has_tokenizer = any(list(folder.glob(name)) for name in TOKENIZER_FILES)
            if files and has_tokenizer and all(file.is_file() for file in files):
                return folder
        connect_to_hub()
        for weights in STORED_WEIGHTS:  # the pickled ones only where there are no others
            stem, _, suffix = weights.partition(".")
            patterns = ["*.json", *TOKENIZER_FILES, "*.py", f"{stem}*.{suffix}"]
            folder = Path(snapshot_download(place, allow_patterns=patterns))
            if is_hugging_face_folder(folder):
                return folder
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise ConfigError(
            f"there is no folder {place}, and the Hugging Face Hub has no model of that "
            f"name, or cannot be reached ({reason_of(error)}); check the name, or download its "
            "files elsewhere and give their folder"
        ) from None
    raise ConfigError(
        f"{place} on the Hugging Face Hub has no {CONFIG_FILE} with {' or '.join(STORED_WEIGHTS)}"
    )
