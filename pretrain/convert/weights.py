"""The weights of a model: read from a file of ours, and checked."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from data_prep.files.quoting import first_line, plain, quoted
from pretrain.config.errors import ConfigError
from pretrain.model.shapes import shapes_only

WEIGHTS_FILE = "model.safetensors"
NAMES_SHOWN = 4


def stored_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights in a folder of ours, in fp32; transformers may have saved it in parts.

    Raises:
        ConfigError: a file is damaged.
    """
    weights = dict[str, Tensor]()
    for file in sorted(folder.glob("model*.safetensors")):
        try:
            weights |= in_fp32(load_file(file))
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"{file} is damaged ({plain(first_line(error))})") from None
    return weights


def in_fp32(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return floating-point weights in fp32, and others, which no model has, as they are."""
    return {name: w.float() if w.is_floating_point() else w for name, w in weights.items()}


def check_weights(
    weights: Mapping[str, Tensor], build: Callable[[], nn.Module], *, place: str
) -> None:
    """Check that these are the weights of a model: all of them, of their shapes, and finite.

    The model that `build` builds gets shapes only, and no memory.

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
