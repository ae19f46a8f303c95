"""References to models and tasks: small enough for every trial, and loadable in a worker."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from data_prep.files.program import shell_command
from finetune.models.kept_model import (
    as_pretrained,
    is_model,
)
from finetune.results.sweep_record import WITHOUT_PRETRAINING, ModelRecord, model_folder
from finetune.tasks.custom import OwnTask, read_own
from finetune.tasks.suite import Suite
from finetune.tasks.suite_files import read_task
from finetune.tasks.task import Task, TaskData
from pretrain.checkpoint.starting import RUN_FILE
from pretrain.config.errors import ConfigError
from pretrain.convert.pretrained import (
    Pretrained,
    checkpoints_of,
    load_pretrained,
)

NEWEST, ALL = "newest", "all"


@dataclass(frozen=True)
class ModelRef:
    """A model to fine-tune; `load` reads its weights."""

    place: str  # one checkpoint, export or external model: the newest one of a run changes
    name: str
    step: int | None  # of pre-training
    pretrained: bool  # False: only its shape and its tokenizer are used
    digest: str  # of the weights: identifies the model after its folder was moved
    notes: tuple[str, ...] = field(default=(), compare=False)  # see `Pretrained`

    @property
    def folder_name(self) -> str:
        """Return the name of its folder in a sweep."""
        return model_folder(self.name, self.step, pretrained=self.pretrained)

    def describe(self) -> str:
        """Return its name in messages."""
        if not self.pretrained:
            return f"{self.name} {WITHOUT_PRETRAINING}"
        return self.name if self.step is None else f"{self.name} step {self.step:,}"

    def load(self) -> Pretrained:
        """Load the model.

        Raises:
            ConfigError: it does not exist any more, or has other weights.
        """
        found = _load(self.place)
        if self.digest != _digest(found, pretrained=self.pretrained):
            raise ConfigError(
                f"{self.place} has changed since this sweep was started; restore it, or choose "
                "another folder (--to FOLDER)"
            )
        return found


@dataclass(frozen=True)
class TaskRef:
    """A task and the place of its examples; `load` reads them."""

    task: Task | OwnTask
    place: str = ""  # of the suite's files; unused by the user's own task
    suite: Suite | None = field(default=None, hash=False)  # None: the user's own task

    @property
    def name(self) -> str:
        """Return the name of the task."""
        return self.task.name

    def load(self) -> TaskData:
        """Read the examples.

        Raises:
            ConfigError: there is no such folder.
            TaskError: a file is missing or damaged.
        """
        if isinstance(self.task, OwnTask):
            return read_own(self.task)
        assert self.suite is not None
        return read_task(self.suite, self.task, self.place)


def read_model_refs(
    places: Sequence[str],
    checkpoints: Sequence[str],
    *,
    from_scratch: bool,
    recorded: Sequence[ModelRecord] = (),
) -> list[ModelRef]:
    """Find the models and load each once, so that damage is found before the start.

    Runs of one name, such as the seeds of an arm, go by the names of their folders; recorded models
    by the names that they have.

    Args:
        places: as `load_pretrained` takes them, or folders of fine-tuned models.
        checkpoints: of the runs among them: "newest", "all", or steps.
        from_scratch: whether each encoder is fine-tuned with new weights too.
        recorded: models of earlier commands on the folder of the sweep.

    Raises:
        ConfigError: there is no such model or checkpoint, or two have the same name.
        ShardError: the tokenizer of a run is damaged.
    """
    found = {
        place: [
            model
            for checkpoint in _selected(place, checkpoints)
            for model in _models_in(place, checkpoint, from_scratch=from_scratch)
        ]
        for place in places
    }
    names = Counter(name for refs in found.values() for name in {model.name for model in refs})
    models: dict[str, ModelRef] = {}
    for place, refs in found.items():
        for ref in refs:
            is_repeated = names[ref.name] > 1 and (Path(place) / RUN_FILE).is_file()
            name = Path(place).resolve().name if is_repeated else ref.name
            model = replace(ref, name=_recorded_name(ref, recorded, name))
            other = models.setdefault(model.folder_name, model)
            if other.digest != model.digest:
                raise ConfigError(
                    f"{other.place} and {model.place} have the same name {model.name!r}: "
                    "fine-tune them separately, each into its own folder, and give both "
                    f"folders to {shell_command('finetune', 'table')}"
                )
    return list(models.values())


def _recorded_name(ref: ModelRef, recorded: Sequence[ModelRecord], name: str) -> str:
    """Return the name of a model in its sweep, whose trials would be repeated under another.

    Args:
        ref: to be named.
        recorded: models of the sweep.
        name: of a new one; of one that is there under several names, this one if it is among them.
    """
    same = (ref.digest, ref.step, ref.pretrained)
    names = [
        model.model for model in recorded if (model.digest, model.step, model.pretrained) == same
    ]
    return name if name in names else next(iter(names), name)


def _selected(place: str, checkpoints: Sequence[str]) -> list[str | None]:
    """Return the `checkpoint` arguments of `load_pretrained`."""
    selected: list[str | None] = []
    for word in checkpoints:
        if word == ALL:
            selected += [folder.name for folder in checkpoints_of(Path(place))] or [None]
        else:
            selected.append(None if word == NEWEST else word)
    return selected


def _models_in(place: str, checkpoint: str | None, *, from_scratch: bool) -> list[ModelRef]:
    found = _load(place, checkpoint)
    return [
        ModelRef(
            found.place,
            found.name,
            found.step if pretrained else None,
            pretrained,
            _digest(found, pretrained=pretrained),
            found.notes if pretrained else (),
        )
        for pretrained in ((True, False) if from_scratch else (True,))
    ]


def _load(place: str, checkpoint: str | None = None) -> Pretrained:
    """Load a pre-trained model, or the encoder of a fine-tuned one."""
    if checkpoint is None and is_model(Path(place)):
        return as_pretrained(Path(place))
    return load_pretrained(place, checkpoint=checkpoint)


def _digest(found: Pretrained, *, pretrained: bool) -> str:
    """Return a digest of the weights or, if they are not used, of shape and tokenizer."""
    digest = hashlib.sha256()
    if not pretrained:
        digest.update(found.model.model_dump_json().encode())
        digest.update(found.text_encoder.tokenizer.to_str().encode())
        return digest.hexdigest()[:16]
    for name, weight in sorted(found.weights.items()):
        digest.update(name.encode())
        digest.update(weight.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
