"""All settings of a run."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from data_prep.files.quoting import quoted
from data_prep.settings import Section, is_changed
from pretrain.config.settings.data import DataSettings
from pretrain.config.settings.layer_drop import LayerDropSettings
from pretrain.config.settings.model import (
    DEFAULT_OBJECTIVE,
    REPLACED_TOKEN_DETECTION,
    ElectraSettings,
    ModelSettings,
)
from pretrain.config.settings.training import (
    BatchSettings,
    CheckpointSettings,
    EngineSettings,
    EvaluationSettings,
    LearningRateSettings,
    OptimizerSettings,
    TroubleSettings,
)

LONGEST_NAME = 200  # bytes; that of a run, and so of its folder


class RunSettings(Section):
    """One pre-training run."""

    name: str = Field("run", description="name in tables, and of the folder below runs")
    seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        description="seed of weights, masks, sample order, dropout and drop masks",
    )
    initial_weights: str | None = Field(
        None,
        description="start from these weights: a run, a checkpoint, an export, a Hugging Face BERT "
        "(folder or name), or a checkpoint of the TUPE authors' code",
    )
    initial_positions: Literal["loaded", "new"] = Field(
        "loaded",
        description="with initial_weights: load the positions too, or start new ones of any "
        "encoding",
    )
    objective: str = Field(DEFAULT_OBJECTIVE, description="pre-training objective")
    steps: int = Field(1_000_000, ge=1, lt=10**8, description="optimizer steps")
    hours: float | None = Field(
        None,
        gt=0,
        description="train for this time instead of steps, not counting evaluation and checkpoints",
    )
    log_every_steps: int = Field(100, ge=1, description="steps between logged metrics")
    loggers: tuple[Literal["tensorboard", "wandb"], ...] = Field(
        ("tensorboard",),
        description="curves besides metrics.jsonl; wandb mirrors TensorBoard; none: no others",
    )
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    electra: ElectraSettings = ElectraSettings()
    batch: BatchSettings = BatchSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    learning_rate: LearningRateSettings = LearningRateSettings()
    layer_drop: LayerDropSettings = LayerDropSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    trouble: TroubleSettings = TroubleSettings()
    engine: EngineSettings = EngineSettings()

    @model_validator(mode="before")
    @classmethod
    def _read_tokenizer_of_folder(cls, values: Any) -> Any:
        """Take the tokenizer of a model of transformers, where shards are to be built."""
        if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
            return values
        folder, data = values["model"].get("folder"), values.get("data", {})
        if folder is None or not isinstance(data, dict) or data.get("shards") is not None:
            return values
        return {**values, "data": {"tokenizer": folder, **data}}

    @field_validator("name")
    @classmethod
    def _is_one_line(cls, name: str) -> str:
        parts = name.split("/")
        leaves_runs = name.startswith("/") or ".." in parts  # where its folder is
        if leaves_runs or not name.isprintable() or not 0 < len(name.encode()) <= LONGEST_NAME:
            raise ValueError(
                f"name={quoted(name)}: give a name of one line, up to {LONGEST_NAME} bytes, that "
                "does not lead to another folder"
            )
        return name

    @field_validator("loggers", mode="before")
    @classmethod
    def _may_be_none(cls, names: Any) -> Any:
        return () if names in (None, [None], ["none"]) else names

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "RunSettings":
        if self.initial_positions == "new" and self.initial_weights is None:
            raise ValueError(
                "initial_positions='new' has no effect without initial_weights; name weights, "
                "or remove it"
            )
        for name in ElectraSettings.model_fields:
            if self.objective != REPLACED_TOKEN_DETECTION and is_changed(self.electra, name):
                raise ValueError(
                    f"electra.{name} has no effect with objective={quoted(self.objective)}; "
                    f"choose objective={REPLACED_TOKEN_DETECTION}, or remove it"
                )
        if self.model.transformers is not None and self.objective != DEFAULT_OBJECTIVE:
            raise ValueError(
                f"a model of transformers has no objective={self.objective}; choose the default"
            )
        return self

    @model_validator(mode="after")
    def _check_lengths(self) -> "RunSettings":
        if self.data.sequence_length > self.model.max_sequence_length:
            raise ValueError(
                f"data.sequence_length={self.data.sequence_length} is longer than "
                f"model.max_sequence_length={self.model.max_sequence_length}; give "
                f"--data.sequence_length {self.model.max_sequence_length}, or a new model more "
                "positions"
            )
        return self
