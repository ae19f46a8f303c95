"""The settings of a fine-tuning protocol, and the files that they are read from.

A protocol is a TOML file in protocols/ or the user's own, which may extend another beside it. It is
written as a sweep of pre-training: `seeds`, [settings], and what is tried under [tune]. Options of
the command line override it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator

from data_prep.files.quoting import one_spelling
from pretrain.config.errors import ConfigError, nearest
from pretrain.config.recipe_files import read_toml
from pretrain.config.settings import LearningRateSettings, OptimizerSettings, Section, explained
from pretrain.config.settings.training import Decay

PROTOCOLS = Path(__file__).parent / "protocols"

# A sweep may grow in these settings; a change of any other makes it another protocol.
GROWING = ("learning_rates", "seeds")


class Protocol(Section):
    """How a pre-trained encoder is fine-tuned, the same for all models of a comparison."""

    name: str = Field("own", description="name of the protocol in tables")
    learning_rates: tuple[float, ...] = Field(
        (2e-5, 3e-5, 4e-5, 5e-5),
        min_length=1,
        description="peak learning rates, such as 3e-4,1e-3; each is tried",
    )
    seeds: int = Field(5, ge=1, le=1000, description="number of seeds: 0, 1, ...")
    epochs: int = Field(5, ge=1, description="passes over the training examples")
    epochs_of: dict[str, PositiveInt] = Field({}, description="tasks with another number of epochs")
    batch: int = Field(32, ge=1, description="examples per optimizer step")
    sequence_length: int = Field(
        512, ge=8, description="longest sequence, in tokens; longer ones are cut"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of embeddings, branches and head")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout of attention weights")
    schedule: Literal["warmup_linear", "warmup_cosine", "warmup_constant"] = Field(
        "warmup_linear", description="warmup_linear, warmup_cosine or warmup_constant"
    )
    warmup_ratio: float = Field(0.06, ge=0, lt=1, description="warm-up, as a share of the steps")
    betas: tuple[Decay, Decay] = Field((0.9, 0.999), description="Adam's beta1 and beta2")
    epsilon: float = Field(1e-6, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay")
    decay_everything: bool = Field(False, description="decay biases and norms too")
    max_gradient_norm: float | None = Field(1.0, gt=0, description="gradient clipping; none: off")
    layer_decay: float = Field(1.0, gt=0, le=1, description="layer-wise decay of the learning rate")
    both_orders: tuple[str, ...] = Field(
        (), description="tasks of pairs to train on in both orders"
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: rare classes weigh more, so that all count equally"
    )
    precision: Literal["auto", "bf16", "fp32"] = Field(
        "auto", description="auto, bf16 or fp32; auto: bf16 where the device has it"
    )

    @field_validator("learning_rates")
    @classmethod
    def _check_rates(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        wrong = [rate for rate in rates if not 0 < rate < float("inf")]
        if wrong or len(set(rates)) < len(rates):
            raise ValueError(f"learning_rates={rates}: give positive numbers, each of them once")
        return rates

    @field_validator("max_gradient_norm", mode="before")
    @classmethod
    def _read_none(cls, value: Any) -> Any:
        return None if value == "none" else value  # TOML has no null

    def epochs_on(self, task: str) -> int:
        """Return the number of epochs on a task."""
        of_tasks = {one_spelling(name): epochs for name, epochs in self.epochs_of.items()}
        return of_tasks.get(one_spelling(task), self.epochs)

    def orders_on(self, task: str) -> int:
        """Return in how many orders of its texts each training example of a task is a row."""
        return 2 if one_spelling(task) in map(one_spelling, self.both_orders) else 1

    def optimizer(self) -> OptimizerSettings:
        """Return the settings of the optimizer."""
        return OptimizerSettings(
            betas=self.betas,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            decay_everything=self.decay_everything,
            max_gradient_norm=self.max_gradient_norm,
        )

    def learning_rate(self, peak: float) -> LearningRateSettings:
        """Return the settings of the schedule with this peak."""
        return LearningRateSettings(
            schedule=self.schedule, peak=peak, warmup_ratio=self.warmup_ratio
        )


def load_protocol(place: str, changes: Mapping[str, Any] | None = None) -> Protocol:
    """Read a protocol and override it by `changes`, where `epochs` applies to all tasks.

    Changed settings become part of the name, such as quick-epochs_5, because tables distinguish
    protocols by it. More learning rates or seeds keep the name. `place` is a name in
    finetune/protocols, or a .toml file.

    Raises:
        ConfigError: there is no such protocol or setting, or a value is out of range.
    """
    tree, given = _read(place), dict(changes or {})
    if "epochs" in given:
        given["epochs_of"] = {}
    with explained(f"protocol {place}: ", Protocol):
        before, after = Protocol(**tree), Protocol(**{**tree, **given})
    old, new = before.model_dump(), after.model_dump()
    changed = [name for name in new if new[name] != old[name] and name not in GROWING]
    if "epochs_of" in changed:  # `epochs` applies to all tasks
        changed = ["epochs", *(name for name in changed if not name.startswith("epochs"))]
    values = {name: new[name] if isinstance(new[name], tuple) else (new[name],) for name in changed}
    suffix = "".join(f"-{name}_{'_'.join(map(str, values[name]))}" for name in changed)
    return after.model_copy(update={"name": after.name + suffix})


def _read(place: str) -> dict[str, Any]:
    file, ours = Path(place), {path.stem: path for path in sorted(PROTOCOLS.glob("*.toml"))}
    if file.suffix != ".toml" or not file.is_file():
        if place not in ours:
            raise ConfigError(
                f"there is no protocol {place!r}{nearest(place, list(ours))}; one of "
                f"{', '.join(ours)}, or a .toml file"
            )
        file = ours[place]
    tree = read_toml(file, ours)
    settings, tried = (tree.pop(name, {}) for name in ("settings", "tune"))
    are_tables = isinstance(settings, dict) and isinstance(tried, dict)
    at_the_top = tree.keys() & Protocol.model_fields.keys() - {"name", "seeds"}  # older ones: all
    if not are_tables or ((settings or tried) and at_the_top):
        raise ConfigError(f"{file}: [settings] and [tune] are tables; all but seeds is in them")
    if tried.keys() - {"learning_rate"}:
        raise ConfigError(f"{file}: [tune] has {', '.join(tried)}; give it learning_rate alone")
    return {**tree, **settings, **{f"{name}s": values for name, values in tried.items()}}
