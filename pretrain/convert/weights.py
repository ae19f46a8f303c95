"""The weights in a file: read without executing anything in it, and checked against a model."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from data_prep.files.quoting import plain, quoted
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.model.shapes import shapes_only

WEIGHTS_FILE = "model.safetensors"
STORED_WEIGHTS = (WEIGHTS_FILE, "pytorch_model.bin")  # of transformers, in the order of preference
# Errors of torch.load for a damaged file; which one depends on where the damage is.
UNREADABLE = (
    *(OSError, EOFError, RuntimeError, pickle.UnpicklingError, SafetensorError),
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError),
)
NAMES_SHOWN = 4


def stored_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights that transformers saved in a folder, in one file or in several.

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
        except UNREADABLE as error:
            reason = plain(str(error).partition("\n")[0])
            raise ConfigError(
                f"{file} is damaged, or no file of weights ({reason}); download or export it again"
            ) from None
        stored |= named_tensors(content, place=str(file))
    return stored


def weight_files(folder: Path) -> list[Path]:
    """Return the files of the weights, safetensors first; none where there are none.

    Raises:
        ConfigError: an index of several files is damaged.
    """
    for name in STORED_WEIGHTS:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            weight_map = read_json_object(index).get("weight_map")
            parts = set(map(str, weight_map.values())) if isinstance(weight_map, dict) else {""}
            # Files beside it only: an index of somebody else names no others.
            if not all(part == plain(part) and Path(part).name == part for part in parts):
                raise ConfigError(
                    f"{index} is damaged: no weight_map with names of files beside it; download it "
                    "again"
                )
            return [folder / part for part in sorted(parts)]
    return []


def named_tensors(stored: Any, *, place: str) -> dict[str, Tensor]:
    """Return the content of a file of weights, which may hold anything, checked.

    Raises:
        ConfigError: it is no dictionary of tensors, or a tensor is larger than its storage.
    """
    if not isinstance(stored, dict):
        raise ConfigError(f"{place} holds no weights but {quoted(type(stored).__name__)}")
    for name, tensor in stored.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ConfigError(
                f"{place} holds {quoted(type(tensor).__name__)} as {quoted(name)}; weights are "
                "tensors with names"
            )
        # An expanded view of a small file could fill any memory once it is copied.
        is_plain = tensor.layout is torch.strided and not tensor.is_quantized
        if not is_plain or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.itemsize:
            raise ConfigError(f"{place}: {plain(name)} is not stored in full; save a plain copy")
    return stored


def in_fp32(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return floating-point weights in fp32, and others, which no model has, as they are."""
    return {name: w.float() if w.is_floating_point() else w for name, w in weights.items()}


def check_weights(
    weights: Mapping[str, Tensor], build: Callable[[], nn.Module], *, place: str
) -> None:
    """Check that these are the weights of a model: all of them, of their shapes, and finite.

    Args:
        weights: by their names.
        build: builds the model; it gets shapes only, and no memory.
        place: of the weights, for messages.

    Raises:
        ConfigError: they are not; names some.
    """
    with shapes_only():
        expected = dict(build().named_parameters())  # of tied weights one
    missing = sorted(expected.keys() - weights.keys())
    if missing and all(name.startswith("head.") for name in missing):
        raise ConfigError(
            f"{place} has no pre-training head ({described(missing)} missing): it is a fine-tuned "
            "model, or an encoder alone; give the model as it was pre-trained"
        )
    found = {"needs": missing, "has no place for": sorted(weights.keys() - expected.keys())}
    if complaints := [f"{title} {described(names)}" for title, names in found.items() if names]:
        raise ConfigError(
            f"{place} holds the weights of another model: the one that its settings describe "
            f"{' and '.join(complaints)}"
        )
    for name, tensor in weights.items():
        if tensor.shape != expected[name].shape:
            shapes = f"{quoted(tuple(tensor.shape))} instead of {tuple(expected[name].shape)}"
            raise ConfigError(f"{place}: {name} is {shapes}")
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            raise ConfigError(
                f"{place}: {name} holds values that are no finite numbers: the file is damaged, or "
                "its training diverged"
            )


def described(names: Sequence[str]) -> str:
    """Return the first few names and the number of the others."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(plain, names[:NAMES_SHOWN])) + more
