"""A fine-tuned model on the disk: the folder `model` of a trial, which needs no other file.

fine_tuned.json      encoder, head, task, labels and scores: a `KeptRecord`; written last
model.safetensors    the weights of a `TaskModel`, those of the head without their prefix
tokenizer.json       of the encoder
"""

import shutil
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from data_prep.files.atomic import put_in_place, save_text, write_through
from data_prep.files.program import shell_command
from data_prep.files.quoting import plain
from data_prep.shards.manifest import TOKENIZER_FILE, TokenizerRecord, sha256_of
from finetune.results.result import Scores, TrialResult, read_json
from finetune.training.encoding import EncodedTask
from finetune.training.model import ENCODER, HEAD, TaskModel
from finetune.training.targets import Classes, Target, Values
from pretrain.config.errors import ConfigError
from pretrain.config.settings import ModelSettings
from pretrain.convert.exports.hf_format import save_weights, stored_text_encoder
from pretrain.convert.pretrained import Pretrained
from pretrain.convert.stored_weights import WEIGHTS_FILE
from pretrain.convert.text_encoder import TextEncoder
from pretrain.convert.weight_checks import check_names, check_shapes
from pretrain.model.shapes import shapes_only

MODEL_FOLDER = "model"  # in the folder of a trial
RECORD_FILE = "fine_tuned.json"
PARTIAL, REMOVED = ".partial", ".removed"
MOST_NAMED = 10  # in a message
REPEAT = "fine-tune again, or restore the folder from a copy"


class KeptRecord(BaseModel):
    """What is known of a fine-tuned model besides its weights."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    format: Literal[1] = 1
    name: str  # of the encoder, in tables
    step: int | None = Field(ge=0)  # of its pre-training
    task: str
    file: str = ""  # name of the user's own one that it was learned from
    texts: tuple[str, ...] = Field(min_length=1, max_length=2)  # columns
    label: str  # column
    labels: tuple[str, ...]  # none: a regression
    centre: float = 0.0  # of the numbers of a regression, and
    spread: float = Field(1.0, gt=0)  # their unit: see `Values`
    metric: str  # the main one
    scores: Scores
    protocol: str
    learning_rate: float = Field(gt=0)
    seed: int = Field(ge=0)
    epochs: int = Field(ge=1)
    sequence_length: int = Field(ge=3)  # to which rows are cut
    pretrained_length: int = Field(ge=3)  # of the longest row of pre-training
    model: ModelSettings
    tokenizer: TokenizerRecord
    vocabulary: str  # `TextEncoder.fingerprint`
    weights: str  # sha256 of the file

    @model_validator(mode="after")
    def _check_labels(self) -> "KeptRecord":
        if len(self.labels) == 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError("labels: two or more, each of them once, or none")
        return self

    @property
    def target(self) -> Target:
        """Return how predictions are derived from logits."""
        return Classes(len(self.labels)) if self.labels else Values(self.centre, self.spread)

    def describe(self) -> str:
        """Return its name in messages."""
        step = "" if self.step is None else f" step {self.step:,}"
        return f"{self.name}{step} on {self.task}"


class KeptModel(NamedTuple):
    """A fine-tuned model that was read."""

    record: KeptRecord
    weights: dict[str, Tensor]  # state dict of its TaskModel, fp32, on the CPU
    text_encoder: TextEncoder

    def restored(self, *, attention: str = "eager") -> TaskModel:
        """Return the model with its weights, in evaluation mode."""
        model = TaskModel(self.record.model, self.record.target.num_outputs, attention=attention)
        model.load_state_dict(self.weights)
        return model.eval()


def save_model(
    trial: Path,
    model: TaskModel,
    data: EncodedTask,
    pretrained: Pretrained,
    result: TrialResult,
) -> None:
    """Write the folder of a model into that of its trial, complete or not at all.

    Args:
        trial: folder of the trial.
        model: as it was trained.
        data: that it was trained on.
        pretrained: that it began with.
        result: of the trial.
    """
    folder = trial / MODEL_FOLDER
    partial = folder.with_suffix(PARTIAL)
    partial.mkdir()
    save_text(partial / TOKENIZER_FILE, pretrained.text_encoder.tokenizer.to_str(pretty=True))
    weights = {
        name.removeprefix(HEAD): tensor.detach().cpu()
        for name, tensor in model.state_dict().items()
    }
    save_weights(partial / WEIGHTS_FILE, weights)
    write_through(partial / WEIGHTS_FILE)
    record = _record_of(model, data, pretrained, result, sha256_of(partial / WEIGHTS_FILE))
    save_text(partial / RECORD_FILE, record.model_dump_json(indent=1) + "\n")
    put_in_place(partial, folder)


def _record_of(
    model: TaskModel,
    data: EncodedTask,
    pretrained: Pretrained,
    result: TrialResult,
    weights: str,
) -> KeptRecord:
    scale = {}
    if isinstance(data.target, Values):
        scale = {"centre": data.target.centre, "spread": data.target.spread}
    return KeptRecord(
        name=result.model,
        step=result.step,
        task=data.task.name,
        file=data.task.file,
        texts=data.task.texts,
        label=data.task.label,
        labels=data.task.labels,
        **scale,
        metric=data.task.metrics[0],
        scores=result.scores,
        protocol=result.protocol,
        learning_rate=result.learning_rate,
        seed=result.seed,
        epochs=result.epochs,
        sequence_length=data.train.rows.longest,
        pretrained_length=pretrained.sequence_length,
        model=model.settings,
        tokenizer=pretrained.text_encoder.record,
        vocabulary=pretrained.text_encoder.fingerprint(),
        weights=weights,
    )


def has_model(trial: Path) -> bool:
    """Return whether the folder of a trial holds its model."""
    return is_model(trial / MODEL_FOLDER)


def remove_model(trial: Path) -> None:
    """Remove the model of a trial, and what a killed process left of one."""
    folder = trial / MODEL_FOLDER
    removed = folder.with_suffix(REMOVED)
    shutil.rmtree(removed, ignore_errors=True)
    if folder.is_dir():
        folder.rename(removed)  # what is removed halfway is not taken for a model
    for remains in (removed, folder.with_suffix(PARTIAL)):
        shutil.rmtree(remains, ignore_errors=True)


def kept_folder(place: Path) -> Path:
    """Return the folder of the fine-tuned model at a place, or of the only one below it.

    Raises:
        ConfigError: there is none, or there are several.
    """
    if is_model(place):
        return place
    below = (file.parent for file in sorted(place.rglob(RECORD_FILE)))
    found = [folder for folder in below if folder.suffix not in (PARTIAL, REMOVED)]
    if len(found) > 1:
        named = ", ".join(map(str, found[:MOST_NAMED]))
        raise ConfigError(
            f"{place} holds {len(found)} fine-tuned models; name the one that you mean: {named}"
        )
    if not found:
        command = shell_command("finetune", "run", "RUN", "--keep", "best")
        raise ConfigError(
            f"{place} holds no fine-tuned model (no {RECORD_FILE}); one is kept by: {command}"
        )
    return found[0]


def is_model(folder: Path) -> bool:
    """Return whether a folder is that of a fine-tuned model."""
    return (folder / RECORD_FILE).is_file()


def read_record(folder: Path) -> KeptRecord:
    """Return the record of a fine-tuned model.

    Raises:
        ConfigError: it is damaged.
    """
    return read_json(folder / RECORD_FILE, TypeAdapter(KeptRecord), REPEAT)


def read_model(folder: Path) -> KeptModel:
    """Read a fine-tuned model.

    Raises:
        ConfigError: a file is missing or damaged, or the files do not belong together.
        TokenizerError: the tokenizer is missing or damaged.
    """
    record, file = read_record(folder), folder / WEIGHTS_FILE
    try:
        if sha256_of(file) != record.weights:
            raise ConfigError(f"{file} is damaged: it is not as it was written; {REPEAT}")
        stored = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file} cannot be read: {plain(str(error))}; {REPEAT}") from None
    weights = {
        name if name.startswith(ENCODER) else f"{HEAD}{name}": tensor
        for name, tensor in stored.items()
    }
    with shapes_only():
        expected = TaskModel(record.model, record.target.num_outputs).state_dict()
    check_names(weights, expected, place=f"{file}, of {RECORD_FILE},")
    check_shapes(weights, expected, expected, place=str(file))
    text_encoder = stored_text_encoder(
        folder / TOKENIZER_FILE, record.tokenizer, record.vocabulary, fix=REPEAT
    )
    return KeptModel(record, weights, text_encoder)


def as_pretrained(folder: Path) -> Pretrained:
    """Return a fine-tuned model as the start of another task: its encoder, without the head.

    Raises:
        ConfigError, TokenizerError: see `read_model`.
    """
    record, weights, text_encoder = read_model(folder)
    step = "" if record.step is None else f" step {record.step}"
    return Pretrained(
        model=record.model,
        weights={name: tensor for name, tensor in weights.items() if name.startswith(ENCODER)},
        text_encoder=text_encoder,
        name=f"{record.name}{step} after {record.task}",
        place=str(folder.absolute()),
        step=None,  # of pre-training: it has had more than that
        sequence_length=record.pretrained_length,
    )
