"""The files in which transformers saves weights: one, or several with an index."""

import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from data_prep.files.quoting import plain, quoted
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.convert.weight_checks import named_tensors

WEIGHTS_FILE = "model.safetensors"
STORED_WEIGHTS = (WEIGHTS_FILE, "pytorch_model.bin")  # in the order of preference
# Errors of torch.load for a damaged file; which one depends on where the damage is.
UNREADABLE = (
    *(OSError, EOFError, RuntimeError, pickle.UnpicklingError),
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError),
)


def stored_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights in a folder, whatever number of files they are in.

    Raises:
        ConfigError: a file is missing or damaged; names it.
    """
    stored: dict[str, Tensor] = {}
    for file in weight_files(folder):
        try:
            if file.suffix == ".safetensors":
                content: Any = load_file(file)
            else:
                content = torch.load(file, map_location="cpu", weights_only=True)
        except (SafetensorError, *UNREADABLE) as error:
            reason = plain(str(error).partition("\n")[0])
            raise ConfigError(
                f"{file} is damaged, or no file of weights ({reason}); download or export it again"
            ) from None
        stored |= named_tensors(content, place=str(file))
    return stored


def weight_files(folder: Path) -> list[Path]:
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
