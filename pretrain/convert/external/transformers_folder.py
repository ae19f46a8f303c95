"""Read a model that transformers opens: BERT and ELECTRA's discriminator as ours, others as it is.

Ours is `model.positions = "bert-a"` with `model.norm = "post"`, and the logits are equal; of one
segment: see `from_stock`.
"""

import contextlib
import re
from pathlib import Path
from typing import Any

import torch

from data_prep.files.hub import connect_to_hub, reason_of
from data_prep.files.quoting import first_line
from data_prep.shards.manifest import TOKENIZER_FILE
from data_prep.text.text_encoder import text_encoder_at
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import DEFAULT_OBJECTIVE, ModelSettings, explained
from pretrain.config.settings.transformers_config import FIELDS, configuration_of, trusts_code
from pretrain.convert.exports.hf_format import CONFIG_FILE
from pretrain.convert.model import ENCODER_ALONE, Pretrained
from pretrain.convert.stock_models import STOCK_MODELS, from_stock, stock_objective
from pretrain.model.transformers_encoder import our_name

TOKENIZER_FILES = (TOKENIZER_FILE, "vocab.*", "merges.txt", "*.model")
STORED_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")  # in the order of preference
OF_A_BLOCK = re.compile(r"\.\d+\.")


def read_transformers_model(
    place: str, *, as_it_is: bool = False, trust_remote_code: bool = False
) -> Pretrained:
    """Read weights, configuration and tokenizer; without its head it is an encoder alone.

    Args:
        place: a folder that `save_pretrained` wrote, or a name on the Hugging Face Hub.
        as_it_is: BERT and ELECTRA too are models of transformers.
        trust_remote_code: run code of the folder.

    Raises:
        ConfigError: transformers cannot open it, or its parts do not belong together.
        TokenizerError: its tokenizer is missing or cannot be used.
    """
    from pretrain.convert.exports.in_transformers import check_tokenizer  # takes seconds

    folder = transformers_folder(place)
    trusted = {"trust_remote_code": True} if trust_remote_code else None
    with explained(settings=ModelSettings):
        model = ModelSettings(folder=str(folder), transformers=trusted)
    assert isinstance(model.transformers, dict)
    named = read_json_object(folder / CONFIG_FILE).get("architectures")
    ours = None if as_it_is else stock_objective({**model.transformers, "architectures": named})
    name = STOCK_MODELS[ours].architecture if ours else "AutoModelForMaskedLM"
    whole, has_head = _opened(name, folder, model)
    objective = (ours or DEFAULT_OBJECTIVE) if has_head else ENCODER_ALONE
    if objective == ours:
        theirs = {name: weight.detach() for name, weight in whole.named_parameters()}
        weights = from_stock(theirs, STOCK_MODELS[ours], model.num_layers)
        shape = {name: getattr(model, name) for name in FIELDS}
        model = ModelSettings(positions="bert-a", norm="post", **shape)
    else:
        found = {w: f"encoder.base.{name}" for name, w in whole.base_model.named_parameters()}
        for name, weight in whole.named_parameters():  # tied ones are the encoder's
            found.setdefault(weight, our_name(name, whole))
        wanted = "" if has_head else "encoder."
        weights = {name: w.detach() for w, name in found.items() if name.startswith(wanted)}
        if not trust_remote_code:
            model = model.model_copy(update={"folder": None})
    is_folder = Path(place).is_dir()
    pretrained = Pretrained(
        model=model,
        weights=weights,
        text_encoder=text_encoder_at(str(folder)),
        name=Path(place).resolve().name if is_folder else place.rpartition("/")[2],
        place=str(folder.absolute()) if is_folder else place,
        step=None,
        sequence_length=model.max_sequence_length,
        objective=objective,
    ).checked()
    if objective == ours:
        fix = (
            f"save AutoTokenizer.from_pretrained({str(folder)!r}) there, or in a copy: its "
            f"{TOKENIZER_FILE} gives the same tokens to both. If it is transformers that is wrong, "
            'correct tokenizer_config.json, for instance "do_lower_case": false'
        )
        check_tokenizer(pretrained, folder, num_random=0, fix=fix)
    return pretrained


def _opened(name: str, folder: Path, model: ModelSettings) -> tuple[Any, bool]:
    """Open a folder by a class of transformers; return the model, and whether it has its head."""
    import transformers

    from pretrain.convert.exports.in_transformers import quiet

    assert isinstance(model.transformers, dict)
    try:
        with quiet():
            whole, report = getattr(transformers, name).from_pretrained(
                folder,
                config=configuration_of(model.transformers, model.folder),
                dtype=torch.float32,
                output_loading_info=True,
                trust_remote_code=trusts_code(model.transformers),
            )
    except Exception as error:  # of any class: its files may be anything
        line = first_line(error)
        raise ConfigError(f"{folder}: transformers cannot open the model ({line})") from None
    missing = sorted(our_name(name, whole) for name in report["missing_keys"])
    if missing and missing[0].startswith("encoder."):
        raise ConfigError(f"{folder} lacks weights of its encoder: {missing[0]}; save it again")
    if more := sorted(filter(OF_A_BLOCK.search, report["unexpected_keys"])):
        raise ConfigError(f"{folder}: its {CONFIG_FILE} describes a model that has no {more[0]}")
    return whole, not missing


def transformers_folder(place: str) -> Path:
    """Return the folder of a model; one of the Hub is found in its cache, or downloaded.

    Raises:
        ConfigError: the Hub has none of that name, or cannot be reached.
    """
    if Path(place).is_dir():
        return Path(place)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    def has_one_of(folder: Path, names: tuple[str, ...]) -> bool:
        return any(file.is_file() for name in names for file in folder.glob(name))

    def fetched(*, offline: bool) -> Path:
        for weights in STORED_WEIGHTS:  # the pickled ones only where there are no others
            patterns = ["*.json", *TOKENIZER_FILES, "*.py", weights]
            folder = Path(
                snapshot_download(place, allow_patterns=patterns, local_files_only=offline)
            )
            if has_one_of(folder, (weights,)):
                break
        return folder

    try:
        with contextlib.suppress(LocalEntryNotFoundError):
            folder = fetched(offline=True)
            # Another program may have loaded the weights alone.
            if has_one_of(folder, STORED_WEIGHTS) and has_one_of(folder, TOKENIZER_FILES):
                return folder
        connect_to_hub()
        return fetched(offline=False)
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise ConfigError(
            f"there is no folder {place}, and the Hugging Face Hub has no model of that "
            f"name, or cannot be reached ({reason_of(error)}); check the name, or download its "
            "files elsewhere and give their folder"
        ) from None
