"""Checks of weights read from a file: they are tensors, have these shapes, and are finite."""

from collections.abc import Collection, Iterable, Mapping, Sequence
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


def check_names(
    stored: Mapping[str, Tensor],
    expected: Collection[str],
    *,
    place: str,
    encoder: tuple[str, ...] = ("",),
    unused: tuple[str, ...] = (),
    head: str = "pre-training",
    instead: str = BEFORE_FINE_TUNING,
) -> None:
    """Check that weights are those that are expected, all of them and no others.

    Args:
        stored: of a file.
        expected: names.
        place: of the file, for messages.
        encoder: how names begin that are not the head's.
        unused: how names begin that may be there too.
        head: its kind.
        instead: what to give where only the head is missing.

    Raises:
        ConfigError: one is missing or unknown; names it.
    """
    missing = sorted(set(expected) - stored.keys())
    if missing and not any(name.startswith(encoder) for name in missing):
        raise ConfigError(
            f"{place} has no {head} head ({describe_names(missing)} missing): it is a fine-tuned "
            f"model, or an encoder alone; give {instead}"
        )
    unknown = {name for name in stored.keys() - set(expected) if not name.startswith(unused)}
    found = (("needs", missing), ("has no place for", sorted(unknown)))
    if complaints := [f"{title} {describe_names(names)}" for title, names in found if names]:
        raise ConfigError(
            f"{place} holds the weights of another model: the one that its settings describe "
            f"{' and '.join(complaints)}"
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
    check_names(weights, expected, place=place, encoder=("encoder.", "generator."))
    check_shapes(weights, expected, expected, place=place)
