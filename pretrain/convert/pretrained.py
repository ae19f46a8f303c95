"""Load a pre-trained model from any place: weights, settings and text encoder."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from data_prep.shards.manifest import TOKENIZER_FILE, check_tokenizer, read_manifest
from data_prep.tokenizer.describe import described_tokenizer
from pretrain.checkpoint.folders import CHECKPOINTS, newest_checkpoint, step_of
from pretrain.checkpoint.folders import checkpoints_of as checkpoints_of
from pretrain.checkpoint.format import CheckpointError, load_weights
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import (
    DEFAULT_OBJECTIVE,
    REPLACED_TOKEN_DETECTION,
    ElectraSettings,
    ModelSettings,
)
from pretrain.convert.exports.hf_format import is_export, read_export
from pretrain.convert.external.external_model import ExternalModel
from pretrain.convert.external.loader import read_external
from pretrain.convert.text_encoder import TextEncoder
from pretrain.convert.weight_checks import check_weights
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.model.objectives.replaced_tokens import Discriminator


class Pretrained(NamedTuple):
    """A pre-trained model of a run, an export or another program."""

    model: ModelSettings
    weights: dict[str, Tensor]  # state dict of its Objective or Discriminator, fp32, on the CPU
    text_encoder: TextEncoder
    name: str  # in tables
    place: str  # an absolute path, or a name on the Hub
    step: int | None  # of pre-training; None: unknown
    sequence_length: int  # of the longest row that it was trained on
    objective: str = DEFAULT_OBJECTIVE
    # Of replaced-token detection; None: the generator is not among the weights.
    electra: ElectraSettings | None = None
    notes: tuple[str, ...] = ()  # of a model of another program: what was changed or left out


def load_pretrained(place: str | Path, *, checkpoint: str | int | None = None) -> Pretrained:
    """Load a model that was pre-trained here or by another program.

    Args:
        place: a run folder; RUN/checkpoints/step_00010000; a folder of `pretrain export` or
            `pretrain import`; a BERT or the discriminator of an ELECTRA that Hugging Face's
            transformers saved, or its name on the Hub; a .pt file of the TUPE authors' code, see
            external/loader.py.
        checkpoint: a step of the run, such as 10000 or "step_00010000"; default: the newest.

    Raises:
        ConfigError: there is no model here, or its parts do not belong together.
        ShardError: the manifest or the tokenizer of a run is missing or damaged.
        TokenizerError: the tokenizer of an external model is missing or cannot be used.
    """
    folder = Path(place).absolute()
    if (folder / "run.json").is_file():
        return _from_checkpoint(folder, chosen_checkpoint(folder, checkpoint))
    if checkpoint is not None:
        raise ConfigError(
            f"checkpoint={checkpoint!r} was given with {place}, which is not a run folder: it has "
            "no run.json; leave the checkpoint out, or name the run"
        )
    run = folder.parent.parent
    if folder in checkpoints_of(run) and (run / "run.json").is_file():
        return _from_checkpoint(run, folder)
    if is_export(folder):
        return _from_export(folder)
    external = read_external(str(place))
    if external is not None:
        return from_external(external, str(place))
    raise ConfigError(
        f"{place} holds no pre-trained model; give a run folder (it has a run.json), one of its "
        f"{CHECKPOINTS}/step_* folders, an export, a BERT saved by Hugging Face's transformers "
        "(config.json and its weights), or a .pt file of the TUPE authors' code"
    )


def from_external(external: ExternalModel, place: str) -> Pretrained:
    """Check an external model that was read from `place`.

    Raises:
        ConfigError: its parts do not belong together.
    """
    check_weights(external.weights, external.model, place=place, objective=external.objective)
    check_vocabulary_size(external.text_encoder, external.model, place=place)
    return Pretrained(
        model=external.model,
        weights=external.weights,
        text_encoder=external.text_encoder,
        name=external.name,
        place=str(Path(place).absolute()) if Path(place).exists() else place,
        step=None,
        sequence_length=external.sequence_length,
        objective=external.objective,
        notes=external.notes,
    )


def restored_model(pretrained: Pretrained) -> MaskedLanguageModel:
    """Return the masked language model with its weights, in evaluation mode.

    Raises:
        ConfigError: it was trained for another objective.
    """
    if pretrained.objective != DEFAULT_OBJECTIVE:
        raise ConfigError(
            f"{pretrained.place} was trained with objective={pretrained.objective}; this needs a "
            f"model of objective={DEFAULT_OBJECTIVE}, which predicts words"
        )
    model = MaskedLanguageModel(pretrained.model)
    model.load_state_dict(pretrained.weights)
    return model.eval()


def restored_discriminator(pretrained: Pretrained) -> Discriminator:
    """Return the discriminator of replaced-token detection, in evaluation mode."""
    model = Discriminator(pretrained.model)
    model.load_state_dict(discriminator_weights(pretrained.weights))
    return model.eval()


def restored_network(pretrained: Pretrained) -> MaskedLanguageModel | Discriminator:
    """Return the encoder and its head with their weights, in evaluation mode.

    Raises:
        ConfigError: it was trained for an objective of the user's own.
    """
    if pretrained.objective == REPLACED_TOKEN_DETECTION:
        return restored_discriminator(pretrained)
    return restored_model(pretrained)


def token_logits(pretrained: Pretrained) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Return what maps ids_BS and lengths_B to the logits of every token: BSV, or BS."""
    model = restored_network(pretrained)
    if isinstance(model, Discriminator):
        return model.logits

    def logits(ids_BS: Tensor, lengths_B: Tensor | None) -> Tensor:
        x_BSD = model.encoder(ids_BS, lengths_B=lengths_B)
        logits_BSV: Tensor = model.head(x_BSD, model.encoder.token_embeddings.weight)
        return logits_BSV

    return logits


def discriminator_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights without those of the generator."""
    return {name: weight for name, weight in weights.items() if not name.startswith("generator.")}


def check_vocabulary_size(text_encoder: TextEncoder, model: ModelSettings, *, place: str) -> None:
    """Check that the model has an embedding for every id of the tokenizer.

    Raises:
        ConfigError: it does not.
    """
    last, size = text_encoder.record.vocabulary_size - 1, model.vocabulary_size
    if last >= size:
        raise ConfigError(
            f"the tokenizer of {place} has ids up to {last:,}, but the model has {size:,} "
            "embeddings; give the tokenizer that it was trained with"
        )


def chosen_checkpoint(run: Path, checkpoint: str | int | None) -> Path:
    """Return the folder of a checkpoint; its files are not read.

    Args:
        run: folder of the run.
        checkpoint: as of `load_pretrained`.

    Raises:
        ConfigError: the run has none, or not this one.
    """
    if checkpoint is None:
        return newest_checkpoint(run)
    if not re.fullmatch(r"(step_)?\d+", str(checkpoint)):
        raise ConfigError(f"checkpoint={checkpoint!r} is not a step, such as 10000")
    step = int(str(checkpoint).removeprefix("step_"))
    found = checkpoints_of(run)
    for folder in found:
        if step_of(folder) == step:
            return folder
    steps = ", ".join(str(step_of(folder)) for folder in found) or "none"
    raise ConfigError(f"{run} has no checkpoint of step {step}; it has: {steps}")


def _from_checkpoint(run: Path, checkpoint: Path) -> Pretrained:
    settings, manifest = load_settings(run), read_manifest(run)
    check_tokenizer(run, manifest)
    try:
        weights = load_weights(checkpoint)
    except CheckpointError as error:
        raise ConfigError(f"{error}; name another checkpoint of the run") from None
    check_weights(
        weights,
        settings.model,
        place=str(checkpoint),
        objective=settings.objective,
        electra=settings.electra,
    )
    tokenizer = described_tokenizer(run / TOKENIZER_FILE, manifest.tokenizer)
    text_encoder = TextEncoder(tokenizer, manifest.tokenizer)
    check_vocabulary_size(text_encoder, settings.model, place=str(run))
    return Pretrained(
        model=settings.model,
        weights=weights,
        text_encoder=text_encoder,
        name=settings.name,
        place=str(checkpoint),
        step=step_of(checkpoint),
        sequence_length=settings.data.sequence_length,
        objective=settings.objective,
        electra=settings.electra if settings.objective == REPLACED_TOKEN_DETECTION else None,
    )


def _from_export(folder: Path) -> Pretrained:
    model, weights, text_encoder, record = read_export(folder)
    check_vocabulary_size(text_encoder, model, place=str(folder))
    return Pretrained(
        model=model,
        weights=weights,
        text_encoder=text_encoder,
        name=record.name,
        place=str(folder),
        step=record.step,
        sequence_length=record.sequence_length,
        objective=record.objective,
    )
