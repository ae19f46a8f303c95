"""Load a pre-trained model from any place: weights, settings and text encoder."""

import re
from pathlib import Path

from data_prep.shards.manifest import TOKENIZER_FILE, check_tokenizer, read_manifest
from data_prep.text.text_encoder import TextEncoder
from data_prep.tokenizer.describe import read_tokenizer
from pretrain.checkpoint.folders import CHECKPOINTS, checkpoints_of, newest_checkpoint, step_of
from pretrain.checkpoint.format import CheckpointError, load_weights
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.recipe import load_settings
from pretrain.config.run_files import hint_at_runs
from pretrain.config.settings import REPLACED_TOKEN_DETECTION
from pretrain.convert.exports.hf_format import CONFIG_FILE, is_export, read_export
from pretrain.convert.external.fairseq_tupe import read_tupe
from pretrain.convert.external.transformers_folder import (
    read_transformers_model,
    transformers_folder,
)
from pretrain.convert.model import Pretrained as Pretrained
from pretrain.convert.model import restored_network as restored_network

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def load_pretrained(place: str | Path, *, checkpoint: str | int | None = None) -> Pretrained:
    """Load a model that was pre-trained here or by another program.

    Args:
        place: a run folder; RUN/checkpoints/step_00010000; a folder of `tupelo export` or
            `tupelo import`; a model that Hugging Face's transformers saved, or its name on the
            Hub; or a .pt file of the TUPE authors' code.
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
        return read_export(folder)
    if folder.suffix == ".pt" and folder.is_file():
        return read_tupe(Path(place))
    file = folder / CONFIG_FILE
    is_here = folder.exists() or (len(Path(place).parts) > 1 and hint_at_runs(folder.parent))
    is_on_hub = not is_here and folder.suffix != ".pt" and HUB_NAME.fullmatch(str(place))
    if is_on_hub and is_export(downloaded := transformers_folder(str(place))):
        return read_export(downloaded)
    # A classifier of ours with its own code has no pre-training head.
    if is_on_hub or (file.is_file() and read_json_object(file).get("model_type") != "tupelo"):
        return read_transformers_model(str(place))
    raise ConfigError(
        f"{place} holds no pre-trained model; give a run folder (it has a run.json), one of its "
        f"{CHECKPOINTS}/step_* folders, an export, an encoder saved by Hugging Face's "
        "transformers (config.json and its weights), or a .pt file of the TUPE authors' code"
        + hint_at_runs(folder if folder.exists() else folder.parent)
    )


def chosen_checkpoint(run: Path, checkpoint: str | int | None) -> Path:
    """Return the folder of a checkpoint; its files are not read.

    Raises:
        ConfigError: the run has none, or not this one.
    """
    if checkpoint is None:
        return newest_checkpoint(run)
    if not re.fullmatch(r"(step_)?\d+", str(checkpoint)):
        raise ConfigError(f"checkpoint={checkpoint!r} is not a step, such as 10000")
    step = int(str(checkpoint).removeprefix("step_"))
    found = {step_of(folder): folder for folder in checkpoints_of(run)}
    if step not in found:
        steps = ", ".join(map(str, found)) or "none"
        raise ConfigError(f"{run} has no checkpoint of step {step}; it has: {steps}")
    return found[step]


def _from_checkpoint(run: Path, checkpoint: Path) -> Pretrained:
    settings, manifest = load_settings(run), read_manifest(run)
    check_tokenizer(run, manifest)
    try:
        weights = load_weights(checkpoint)
    except CheckpointError as error:
        raise ConfigError(f"{error}; name another checkpoint of the run") from None
    tokenizer, rows = read_tokenizer(run / TOKENIZER_FILE), settings.data.sequence_length
    return Pretrained(
        model=settings.model,
        weights=weights,
        text_encoder=TextEncoder(tokenizer, manifest.tokenizer),
        name=settings.name,
        place=str(checkpoint),
        step=step_of(checkpoint),
        sequence_length=settings.model.max_sequence_length if settings.model.folder else rows,
        objective=settings.objective,
        electra=settings.electra if settings.objective == REPLACED_TOKEN_DETECTION else None,
    ).checked()
