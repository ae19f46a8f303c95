"""Every setting of a pre-training run, defined once: name, type, default, bounds, description.

A run is one frozen `RunSettings`; recipe.py reads it from a recipe and the command line. ZeRO stage
and precision are in the DeepSpeed JSON that `engine.ds_config` names.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from data_prep.files.quoting import plain, quoted
from data_prep.settings import TextSettings
from pretrain.config.errors import lookup, nearest

LONGEST_NAME = 200  # of a run, and so of its folder
DEFAULT_OBJECTIVE = "masked_language_model"  # also of runs that name none

REPLACED_TOKEN_DETECTION = "replaced_token_detection"  # ELECTRA

# Where curves are written besides JSON lines and CSV, and the module that each needs.
LOGGERS = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


def _is_section(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_changed(settings: BaseModel, name: str) -> bool:
    """Return whether a setting is not its default."""
    return bool(settings.model_dump()[name] != type(settings).model_fields[name].default)


class Section(BaseModel):
    """A group of settings: immutable, without unknown names, with checked defaults."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )


class DataSettings(TextSettings):
    """The text, how it becomes rows of token ids, and how these are read."""

    shards: Path | None = Field(
        None, description="folder of HDF5 shards; default: a name made of the settings here"
    )
    masked_probability: float = Field(0.15, gt=0, lt=1, description="share of tokens to predict")
    masking: Literal["tokens", "words", "spans"] = Field(
        "tokens", description="what is masked together: a token, a word, or a span of words"
    )
    mean_span_words: float = Field(
        3.8, ge=1, description="mean length of a span; with masking=spans only"
    )
    mask_token_share: float = Field(
        0.8, ge=0, le=1, description="of the predicted tokens: shown as [MASK]; ELECTRA: 0.85"
    )
    random_token_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="of the predicted tokens: shown as a random one, the rest as they are; "
        "ELECTRA: 0",
    )
    loader_workers: int = Field(
        0, ge=0, description="processes that prepare batches; 0: the process of the rank"
    )

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "DataSettings":
        if self.masking != "spans" and _is_changed(self, "mean_span_words"):
            raise ValueError(
                f"data.mean_span_words={self.mean_span_words} is without effect with data.masking="
                f"{self.masking!r}; choose data.masking=spans, or remove it"
            )
        return self

    @model_validator(mode="after")
    def _check_shares(self) -> "DataSettings":
        if self.mask_token_share + self.random_token_share > 1:
            raise ValueError(
                f"data.mask_token_share={self.mask_token_share:g} and data.random_token_share="
                f"{self.random_token_share:g} are more than 1 together; lower one"
            )
        return self


# Bounds far above any real model: a typo fails before allocation.
MOST_LAYERS, WIDEST, LONGEST_ROW, LARGEST_VOCABULARY = 4096, 1 << 18, 1 << 18, 1 << 26

PRESETS: dict[str, dict[str, int]] = {
    # Turc et al. 2019 (mini, small) and Devlin et al. 2018 (base, large)
    "mini": {"num_layers": 4, "width": 256, "num_heads": 4},
    "small": {"num_layers": 4, "width": 512, "num_heads": 8},
    "base": {"num_layers": 12, "width": 768, "num_heads": 12},
    "large": {"num_layers": 24, "width": 1024, "num_heads": 16},
}


class ModelSettings(Section):
    """Shape and variant of the encoder."""

    preset: Literal["mini", "small", "base", "large"] | None = Field(
        None, description="sets the four numbers below that are not given"
    )
    num_layers: int = Field(12, ge=1, le=MOST_LAYERS, description="Transformer blocks")
    width: int = Field(768, ge=1, le=WIDEST, description="width of the hidden states")
    num_heads: int = Field(12, ge=1, le=WIDEST, description="attention heads")
    feedforward_width: int = Field(
        3072, ge=1, le=4 * WIDEST, description="inner width; default 4 x width"
    )
    vocabulary_size: int = Field(
        30_528, ge=16, le=LARGEST_VOCABULARY, description="rows of the token embedding"
    )
    max_sequence_length: int = Field(
        512, ge=8, le=LONGEST_ROW, description="rows of the position table"
    )
    positions: str = Field("tupe-r", description="position encoding, see model/positions.py")
    cls_reset: Literal["paper", "reference"] = Field(
        "paper",
        description="[CLS] row and column: the sum is reset (TUPE Eq. 9), or, as in the authors' "
        "code, the absolute and the relative part each",
    )
    position_projection_bias: bool = Field(
        False,
        description="a bias in U^Q and U^K: the TUPE authors' code has one, the paper has none",
    )
    norm: Literal["pre", "post"] = Field("pre", description="LayerNorm before or after a branch")
    relative_buckets: int = Field(
        32, ge=4, le=LONGEST_ROW, multiple_of=2, description="T5 distance buckets"
    )
    relative_max_distance: int = Field(
        128, ge=2, le=LONGEST_ROW, description="distance where T5 buckets end"
    )
    relative_clip: int = Field(
        16,
        ge=1,
        le=LONGEST_ROW,
        description="distance from which on all share a vector (t of Shaw et al.); with "
        "positions=shaw only",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of embeddings and branches")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout of attention weights")
    layer_norm_epsilon: float = Field(1e-12, gt=0, description="BERT: 1e-12")
    initializer_range: float = Field(0.02, gt=0, description="standard deviation of new weights")
    branch_initialisation: Literal["bert", "depth_scaled"] = Field(
        "bert",
        description="new output weights of attention and feed-forward: as all others, or "
        "depth_scaled: divided by sqrt(2 x num_layers), as bing_bert and GPT-2 do",
    )
    output_bias: Literal["zeros", "frequencies"] = Field(
        "zeros",
        description="new output bias: zeros, as in BERT, or the logarithm of the frequencies of "
        "words in the training text",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values  # pydantic reports it by name
        preset = values.get("preset")
        shape = PRESETS.get(preset, {}) if isinstance(preset, str) else {}
        filled: dict[str, Any] = {**shape, **values}
        width = quoted(filled.get("width")).strip("'")  # on the command line it is text
        if "feedforward_width" not in filled and width.isascii() and width.isdigit():
            filled["feedforward_width"] = 4 * int(width)
        return filled

    @model_validator(mode="after")
    def _check_shape(self) -> "ModelSettings":
        if self.width % self.num_heads:
            raise ValueError(
                f"model.width={self.width} cannot be split over model.num_heads={self.num_heads}; "
                "choose a width that is a multiple of the heads"
            )
        return self

    @property
    def head_width(self) -> int:
        """Return the width of one attention head."""
        return self.width // self.num_heads


class ElectraSettings(Section):
    """The generator and the loss of replaced-token detection (Clark et al. 2020)."""

    generator_width: float = Field(
        1 / 3,
        gt=0,
        le=1,
        description="width of the generator, as a share of model.width, in whole heads",
    )
    generator_layers: float = Field(
        1.0, gt=0, le=1, description="blocks of the generator, as a share of model.num_layers"
    )
    generator_weight: float = Field(
        1.0, gt=0, description="of the generator's loss, of masked words"
    )
    discriminator_weight: float = Field(
        50.0, gt=0, description="of the discriminator's loss, of all tokens"
    )


class BatchSettings(Section):
    """Sequences per optimizer step, and per pass of a device."""

    global_sequences: int = Field(256, ge=1, description="sequences per optimizer step, all ranks")
    micro_sequences: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="sequences per rank and pass; auto: the most that fit, on a GPU up to 65,536 "
        "tokens, see engine/micro_batches.py",
    )

    @field_validator("micro_sequences", mode="before")
    @classmethod
    def _read_none(cls, value: Any) -> Any:
        return "auto" if value is None else value  # as earlier versions wrote run.json


# Of a moment of Adam.
Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSettings(Section):
    """The optimizer, weight decay and clipping."""

    kind: str = Field(
        "auto",
        description="AdamW of torch, deepspeed or apex, or muon (start with 2 to 4 times AdamW's "
        "learning rate), see engine/optimizers.py; auto: torch, which needs no compiler",
    )
    betas: tuple[Decay, Decay] = Field((0.9, 0.999), description="decay of AdamW's two moments")
    epsilon: float = Field(1e-6, gt=0, description="added to AdamW's denominator")
    bias_correction: bool = Field(
        True, description="divide AdamW's moments by 1 - beta^t; BERT and bing_bert do not"
    )
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay")
    decay_everything: bool = Field(
        False, description="decay biases and norms too, as the TUPE authors' code does"
    )
    position_rate: float = Field(
        1.0,
        gt=0,
        description="learning rate of the table of absolute positions (p), as a multiple of the "
        "schedule's; it decays like other weights",
    )
    relative_rate: float = Field(
        1.0,
        gt=0,
        description="learning rate of the tables of relative positions, likewise",
    )
    max_gradient_norm: float | None = Field(1.0, gt=0, description="clipping; none: off")


class LearningRateSettings(Section):
    """Learning rate by step, see schedules/learning_rate.py."""

    schedule: str = Field("warmup_linear", description="see schedules/learning_rate.py")
    peak: float = Field(1e-4, gt=0, description="highest value, reached at the end of warm-up")
    warmup_ratio: float = Field(0.01, ge=0, lt=1, description="share of the steps spent warming up")
    decay_rate: float | None = Field(None, gt=0, lt=1, description="warmup_linear_decay_exp only")
    decay_steps: int | None = Field(None, ge=1, description="warmup_linear_decay_exp only")

    @model_validator(mode="after")
    def _check_decay(self) -> "LearningRateSettings":
        exponential = self.schedule == "warmup_linear_decay_exp"
        for name in ("decay_rate", "decay_steps"):
            given = self.model_dump()[name] is not None
            if given != exponential:
                raise ValueError(
                    f"learning_rate.{name} is {'missing' if exponential else 'without effect'} "
                    f"with learning_rate.schedule={self.schedule!r}; "
                    f"{'give it' if exponential else 'set it to none'}"
                )
        return self


# A keep ratio.
Share = Annotated[float, Field(gt=0, le=1)]

# What each schedule of layer drop does not read.
UNUSED_BY_SCHEDULE = {
    "none": ("theta_bar", "gamma", "stages", "depth_profile", "rescale", "compat"),
    "progressive": ("stages",),
    "constant": ("gamma", "stages"),
    "reverse": ("stages",),
    "linear_up": ("gamma", "stages"),
    "linear_down": ("gamma", "stages"),
    "stages": ("theta_bar", "gamma", "depth_profile"),
}


class LayerDropSettings(Section):
    """Progressive layer drop, see schedules/layer_drop.py."""

    schedule: str = Field("none", description="keep ratio by step, see schedules/layer_drop.py")
    theta_bar: Share = Field(
        0.5,
        description="lowest keep ratio of the last layer: at the end, or first if depth grows",
    )
    gamma: Annotated[float, Field(gt=0)] | Literal["auto"] | None = Field(
        "auto",
        description="speed of the exponential decay; auto: 100 / steps, with schedule=reverse "
        "5 / steps, which lasts the whole run; none: 100 / steps",
    )
    stages: tuple[Share, ...] = Field(
        (1 / 2, 2 / 3, 5 / 6, 1.0),
        min_length=1,
        description="with schedule=stages: mean share of the layers that run, in equal parts of "
        "the run",
    )
    depth_profile: Literal["linear", "uniform"] = Field(
        "linear",
        description="linear: deeper layers are kept less often, as in the paper; uniform: all "
        "equally often, and as many in all",
    )
    draw_per: Literal["micro_batch", "step", "sequence"] = Field(
        "micro_batch",
        description="how often blocks are drawn; step: equal at any world size; sequence: each "
        "block runs on a fixed share of the rows of a micro-batch",
    )
    draws: int = Field(
        1, ge=1, description="draws in a step with draw_per=step; the micro-batches share them"
    )
    rescale: bool = Field(True, description="scale a kept branch by 1 / its keep probability")
    compat: Literal["none", "deepspeed"] = Field(
        "none", description="deepspeed: the behaviour of bing_bert, including its flaws"
    )

    @model_validator(mode="before")
    @classmethod
    def _read_default_gamma(cls, values: Any) -> Any:
        return with_default_gamma(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "LayerDropSettings":
        for name in UNUSED_BY_SCHEDULE.get(self.schedule, ()):
            if _is_changed(self, name):
                raise ValueError(
                    f"layer_drop.{name} is without effect with layer_drop.schedule="
                    f"{self.schedule!r}; choose a schedule, such as progressive, or remove it"
                )
        if self.draw_per != "step" and _is_changed(self, "draws"):
            raise ValueError(
                f"layer_drop.draws={self.draws} is without effect with layer_drop.draw_per="
                f"{self.draw_per!r}; choose layer_drop.draw_per=step, or remove it"
            )
        return self


def with_default_gamma(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values of layer drop with "auto" where earlier versions wrote null for gamma.

    Null was 100 / steps. With schedule = "reverse" it stays null: "auto" is another
    number there, and a run that began with the one continues with it.

    Args:
        values: by name.
        prefix: of the names.
    """
    gamma = f"{prefix}gamma"
    if values.get(gamma, "auto") is not None or values.get(f"{prefix}schedule") == "reverse":
        return values
    return {**values, gamma: "auto"}


class EvaluationSettings(Section):
    """Held-out loss, always at full depth."""

    every_steps: int = Field(1000, ge=1, description="steps between evaluations")
    rows: int = Field(4096, ge=1, description="held-out rows read, at most")


class CheckpointSettings(Section):
    """When checkpoints are written, and which are kept."""

    every_steps: int = Field(10_000, ge=1, description="steps between checkpoints")
    keep_last: int | None = Field(None, ge=1, description="older ones are removed; none: keep all")
    keep_every: int | None = Field(
        None, ge=1, description="keep those of every so many steps too; with keep_last only"
    )
    pinned: tuple[PositiveInt, ...] = Field(
        (),
        description="steps whose checkpoint is always written and kept; several with commas, such "
        "as 100000,300000",
    )
    background: bool = Field(
        True, description="write while training continues; takes 12 bytes of memory per parameter"
    )

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "CheckpointSettings":
        if self.keep_every is not None and self.keep_last is None:
            raise ValueError(
                f"checkpoint.keep_every={self.keep_every} is without effect while all are kept; "
                "give checkpoint.keep_last too, or remove it"
            )
        return self


class WatchdogSettings(Section):
    """Detection of steps that take too long, see stability/watchdog.py."""

    stuck_after_seconds: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="report a step that takes longer, and an evaluation or a checkpoint that takes "
        "ten times as long; default: 20 times the median step, at least 120",
    )
    end_after_seconds: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="end the job, with status 1, if a step takes longer; default: wait for ever",
    )

    @model_validator(mode="after")
    def _check_order(self) -> "WatchdogSettings":
        stuck, end = self.stuck_after_seconds, self.end_after_seconds
        if stuck is not None and end is not None and end < stuck:
            raise ValueError(
                f"watchdog.end_after_seconds={end:g} is less than "
                f"watchdog.stuck_after_seconds={stuck:g}; a step is reported before it ends the job"
            )
        return self


class TroubleSettings(Section):
    """Response to NaN, infinity, fp16 overflows in a row and loss spikes, see stability/."""

    on_not_finite: Literal["stop", "rewind"] = Field(
        "stop",
        description="at a loss or gradient that is not finite, or a streak of overflows: stop, or "
        "rewind to the newest checkpoint and leave out the rows of that step",
    )
    on_spike: Literal["record", "stop", "rewind"] = Field(
        "record", description="at a loss spike: record and continue, stop, or rewind"
    )
    spike_factor: float = Field(
        2.0, gt=1, description="a loss above this times the median of the last 100 is a spike"
    )
    overflow_streak: int = Field(20, ge=1, description="fp16 overflows in a row that are a streak")
    skip_steps: int = Field(
        1,
        ge=1,
        description="steps whose rows a rewound run leaves out, ending with that of the anomaly; "
        "all of a streak, and the step before a spike, are added",
    )
    max_rewinds: int = Field(
        3, ge=1, description="rewinds to the same checkpoint before the run stops"
    )

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "TroubleSettings":
        if "rewind" in (self.on_not_finite, self.on_spike):
            return self
        for name in ("skip_steps", "max_rewinds"):
            if _is_changed(self, name):
                raise ValueError(
                    f"trouble.{name} is without effect unless trouble.on_not_finite or "
                    "trouble.on_spike is rewind; choose that, or remove it"
                )
        return self


class EngineSettings(Section):
    """How DeepSpeed runs it."""

    ds_config: str = Field(
        "auto",
        description="DeepSpeed JSON: a path, or a name in ds_configs/; auto: bf16 where the "
        "device has it, else fp16 on CUDA and fp32 on CPU; ZeRO-0 where model and optimizer fit "
        "into half the memory, else ZeRO-1",
    )
    attention: Literal["auto", "eager", "fused", "sdpa", "folded", "triton"] = Field(
        "auto", description="how attention is computed, see model/attention_backends.py"
    )
    cpu_kernels: Literal["auto", "on", "off"] = Field(
        "auto",
        description="our C++ kernels for attention and loss on a CPU; auto: where there is a "
        "compiler to build them, once, in some ten seconds",
    )
    compile_blocks: Literal["auto", "on", "off"] = Field(
        "auto",
        description="torch.compile each block and the loss; auto: on CUDA where a trial at the "
        "start succeeds, but not at ZeRO stage 3",
    )
    recompute_blocks: bool = Field(
        False,
        description="activation checkpointing: keep the input of each block only; a third more "
        "time, a fraction of the memory",
    )
    bf16_residual_stream: bool = Field(
        False,
        description="under bf16 autocast, round the sums of the blocks to bf16 instead of keeping "
        "them in fp32; on CUDA with compiled blocks only",
    )


class RunSettings(BaseSettings):
    """One pre-training run."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    name: str = Field("run", description="name of the run in tables and figures")
    seed: int = Field(
        0, ge=0, lt=2**63, description="of weights, masks, order, dropout and layer drop"
    )
    initial_weights: str | None = Field(
        None,
        description="start from these weights instead of random ones: a run, a checkpoint, an "
        "export, a Hugging Face BERT (folder or name), or a checkpoint of the TUPE authors' code",
    )
    objective: str = Field(
        DEFAULT_OBJECTIVE, description="the loss, see model/objectives/catalog.py"
    )
    steps: int = Field(1_000_000, ge=1, description="optimizer steps")
    hours: float | None = Field(
        None,
        gt=0,
        description="train for this time instead, without evaluation and checkpoints; steps is "
        "then only the unit of learning_rate.decay_steps and layer_drop.gamma",
    )
    restarts_after: tuple[PositiveInt, ...] = Field(
        (),
        description="steps after which learning rate and layer drop begin anew, each time over the "
        "steps until the next; --lengthen restart adds one",
    )
    log_every_steps: int = Field(100, ge=1, description="steps between lines of metrics")
    loggers: tuple[str, ...] = Field(
        ("tensorboard",),
        description="besides metrics.jsonl and metrics.csv: tensorboard, wandb, mlflow, several "
        "with commas; or none",
    )
    log_project: str | None = Field(
        None,
        min_length=1,
        max_length=LONGEST_NAME,
        description="project of wandb, experiment of mlflow; default: that of their environment "
        "variables, or theirs",
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
    watchdog: WatchdogSettings = WatchdogSettings()
    trouble: TroubleSettings = TroubleSettings()
    engine: EngineSettings = EngineSettings()

    @model_validator(mode="before")
    @classmethod
    def _read_none_as_a_word(cls, values: Any) -> Any:
        """Restore "none", which the command line reads as None, where it is a choice."""
        known = sections()
        return {
            name: _with_words(known[name], value)
            if name in known and isinstance(value, dict)
            else value
            for name, value in values.items()
        }

    @field_validator("name")
    @classmethod
    def _is_one_line(cls, name: str) -> str:
        parts = name.split("/")
        leaves_runs = (
            name.startswith("/") or ".." in parts
        )  # out of runs/, where its folder is made
        if leaves_runs or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            raise ValueError(
                f"name={quoted(name)}: give a name of one line, up to {LONGEST_NAME} letters, that "
                "does not lead to another folder"
            )
        return name

    @field_validator("loggers", mode="before")
    @classmethod
    def _may_be_none(cls, names: Any) -> Any:
        return () if names in (None, [None], ["none"]) else names

    @field_validator("loggers")
    @classmethod
    def _are_loggers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            lookup(LOGGERS, name, setting="loggers")
        return names

    @model_validator(mode="after")
    def _refuse_project_without_effect(self) -> "RunSettings":
        if self.log_project is not None and not {"wandb", "mlflow"} & set(self.loggers):
            raise ValueError(
                f"log_project={quoted(self.log_project)} is without effect with loggers="
                f"{','.join(self.loggers) or 'none'}; add wandb or mlflow to loggers, or remove it"
            )
        return self

    @model_validator(mode="after")
    def _refuse_electra_without_effect(self) -> "RunSettings":
        for name in ElectraSettings.model_fields:
            if self.objective != REPLACED_TOKEN_DETECTION and _is_changed(self.electra, name):
                raise ValueError(
                    f"electra.{name} is without effect with objective={quoted(self.objective)}; "
                    f"choose objective={REPLACED_TOKEN_DETECTION}, or remove it"
                )
        if self.electra.generator_layers != 1 and self.layer_drop.schedule != "none":
            raise ValueError(
                f"electra.generator_layers={self.electra.generator_layers:g}: layer drop skips the "
                "same blocks of both networks, so both need as many; set it to 1, or "
                "layer_drop.schedule to none"
            )
        return self

    @model_validator(mode="after")
    def _check_restarts(self) -> "RunSettings":
        given = self.restarts_after
        if list(given) != sorted(set(given)):
            raise ValueError(f"restarts_after={quoted(given)}: give steps in ascending order")
        # A run of given hours has as many steps as they allow.
        if given and self.hours is None and given[-1] >= self.steps:
            raise ValueError(
                f"restarts_after={given[-1]} is not before the end of the run, steps={self.steps}; "
                "raise steps"
            )
        return self

    @model_validator(mode="after")
    def _check_lengths(self) -> "RunSettings":
        if self.data.sequence_length > self.model.max_sequence_length:
            raise ValueError(
                f"data.sequence_length={self.data.sequence_length} is longer than "
                f"model.max_sequence_length={self.model.max_sequence_length}; raise the latter"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the recipe only; by default environment variables such as SEED are read too."""
        return (init_settings,)


def sections() -> dict[str, type[BaseModel]]:
    """Return the groups of settings of a run by their names."""
    kinds = {name: field.annotation for name, field in RunSettings.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if _is_section(kind)}


def setting_fields(section: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Return the fields of all settings, by name such as "model.norm"."""
    fields: dict[str, FieldInfo] = {}
    for name, field in section.model_fields.items():
        kind = field.annotation
        if _is_section(kind):
            fields |= setting_fields(kind, f"{prefix}{name}.")
        else:
            fields[prefix + name] = field
    return fields


def explain(error: ValidationError, settings: type[BaseModel] = RunSettings) -> str:
    """Return the first error of pydantic as one line with setting and value."""
    first = error.errors()[0]
    # Left out: the alternative of a type, such as constrained-int, that the value was read as.
    place = [str(part) for part in first["loc"] if not str(part).startswith("constrained-")]
    where = plain(".".join(place))
    if first["type"] == "extra_forbidden":
        return f"there is no setting {where}{nearest(where, list(setting_fields(settings)))}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return message
    return f"{where}={quoted(first['input'])}: {message[0].lower()}{message[1:]}"


def as_json(settings: RunSettings) -> str:
    """Return the settings as they are written to run.json."""
    return json.dumps(settings.model_dump(mode="json"), indent=1) + "\n"


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level: {"model.norm": "pre", ...}."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        is_section = isinstance(value, dict)
        values |= flat(value, f"{prefix}{name}.") if is_section else {prefix + name: value}
    return values


def stored_settings(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a run.json as one level, with the settings that it is older than.

    A run older than a setting was started with the behaviour that is its default today.
    """
    stored = flat(json.loads(as_json(RunSettings()))) | flat(tree)
    if stored["batch.micro_sequences"] is None:  # as runs wrote before there was a choice
        stored["batch.micro_sequences"] = "auto"
    return with_default_gamma(stored, "layer_drop.")


def _with_words(section: Any, values: dict[str, Any]) -> dict[str, Any]:
    fields = section.model_fields
    words = {
        name
        for name, field in fields.items()
        if field.annotation is str or "none" in get_args(field.annotation)
    }
    return {
        name: "none" if value is None and name in words else value for name, value in values.items()
    }
