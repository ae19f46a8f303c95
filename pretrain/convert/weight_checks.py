"""Checks of weights read from a file: they are tensors, have these shapes, and are finite."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from data_prep.files.quoting import plain, quoted
from pretrain.config.errors import ConfigError
from pretrain.config.settings import (
    DEFAULT_OBJECTIVE,
    REPLACED_TOKEN_DETECTION,
    ElectraSettings,
    ModelSettings,
)
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.objectives.replaced_tokens import Discriminator
from pretrain.model.shapes import shapes_only

NAMES_SHOWN = 4
HEAD = "head."  # of pre-training: in the name of each of its weights
BEFORE_FINE_TUNING = "the run that it comes from, or its export"


def shapes_of(
    model: ModelSettings,
    objective: str = DEFAULT_OBJECTIVE,
    electra: ElectraSettings | None = None,
) -> dict[str, Tensor]:
    """Return the state dict of a model as tensors on the meta device.

    Replaced-token detection without `electra` is the discriminator alone.
    """
    with shapes_only():
        if objective == REPLACED_TOKEN_DETECTION and electra is None:
            return Discriminator(model).state_dict()
        return build_objective(model, objective, electra).state_dict()


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


def describe_names(names: Sequence[str]) -> str:
    """Return the first few names and the number of the others."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(plain, names[:NAMES_SHOWN])) + more


def check_shapes(
    stored: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    names: Iterable[str],
    *,
    place: str,
) -> None:
    """Check that these tensors have the shapes of others and hold finite numbers.

    Raises:
        ConfigError: one does not; names it.
    """
    for name in sorted(names):
        found, wanted = tuple(stored[name].shape), tuple(expected[name].shape)
        if found != wanted:
            raise ConfigError(f"{place}: {plain(name)} is {quoted(found)} instead of {wanted}")
        if not stored[name].is_floating_point() or not stored[name].isfinite().all():
            raise ConfigError(
                f"{place}: {plain(name)} holds values that are no finite numbers: the file is "
                "damaged, or its training diverged"
            )


def check_weights(
    weights: Mapping[str, Tensor],
    model: ModelSettings,
    *,
    place: str,
    objective: str = DEFAULT_OBJECTIVE,
    electra: ElectraSettings | None = None,
) -> None:
    """Check that these are the weights of a model of this shape and objective.

    Raises:
        ConfigError: one is missing, unknown, of another shape or not finite; names it.
    """
    expected = shapes_of(model, objective, electra)
    missing = sorted(expected.keys() - weights.keys())
    if missing and all(name.startswith(HEAD) for name in missing):
        raise ConfigError(
            f"{place} has no pre-training head ({describe_names(missing)} missing): it is a "
            f"fine-tuned model; give {BEFORE_FINE_TUNING}"
        )
    complaints = []
    for title, names in (
        ("lacks", missing),
        ("does not use", sorted(weights.keys() - expected.keys())),
    ):
        if names:
            complaints.append(f"{title} {describe_names(names)}")
    different = [
        f"{name} is {tuple(weights[name].shape)} instead of {tuple(expected[name].shape)}"
        for name in sorted(expected.keys() & weights.keys())
        if expected[name].shape != weights[name].shape
    ]
    complaints += different[:NAMES_SHOWN]
    if complaints:
        raise ConfigError(
            f"the weights in {place} do not fit model.positions={model.positions!r}, "
            f"model.norm={model.norm!r}: {'; '.join(complaints)}; name the folder that they were "
            "trained in"
        )
    check_shapes(weights, expected, expected, place=f"the weights in {place}")
