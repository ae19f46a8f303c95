"""What a grid is made of: models and tasks, as small notes that a worker can load them from."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from finetune.results.sweep_record import WITHOUT_PRETRAINING, model_folder
from finetune.tasks.custom import OwnTask, read_own
from finetune.tasks.glue import Task, TaskData
from finetune.tasks.glue_files import read_glue
from pretrain.config.errors import ConfigError
from pretrain.convert.pretrained import Pretrained, checkpoints_of, load_pretrained

NEWEST, ALL = "newest", "all"


@dataclass(frozen=True)
class Source:
    """A model to fine-tune; `load` reads its weights."""

    place: str  # one checkpoint, export or external model: the newest of a run may soon be another
    name: str
    step: int | None  # of pre-training
    pretrained: bool  # False: its weights are not used, only its shape and its words
    digest: str  # of the weights: the same model wherever its folder has been moved to

    @property
    def folder_name(self) -> str:
        """Return the name of its folder in a grid."""
        return model_folder(self.name, self.step, pretrained=self.pretrained)

    def describe(self) -> str:
        """Return how the user is told of it."""
        if not self.pretrained:
            return f"{self.name} {WITHOUT_PRETRAINING}"
        return self.name if self.step is None else f"{self.name} step {self.step:,}"

    def load(self) -> Pretrained:
        """Load the model.

        Raises:
            ConfigError: it is not there any more, or another one is in its place.
        """
        found = load_pretrained(self.place)
        if self.digest != _digest(found, pretrained=self.pretrained):
            raise ConfigError(
                f"{self.place} has changed since this grid was started; start it again to see how "
                "it goes on"
            )
        return found


@dataclass(frozen=True)
class TaskSource:
    """Where the examples of a task lie; `load` reads them."""

    task: Task | OwnTask
    glue: str  # place of GLUE's files; unused by a task of the user's own

    def load(self) -> TaskData:
        """Read the examples."""
        if isinstance(self.task, OwnTask):
            return read_own(self.task)
        return read_glue(self.task, self.glue)


def read_sources(
    places: Sequence[str], checkpoints: Sequence[str], *, from_scratch: bool
) -> list[Source]:
    """Find the models that are meant, and load each once: what is broken is known before the start.

    Args:
        places: as `load_pretrained` takes them.
        checkpoints: of the runs among them: "newest", "all", or steps.
        from_scratch: whether each encoder is fine-tuned with new weights too.

    Raises:
        ConfigError: there is no such model or checkpoint, or two have the same name.
        ShardError: the tokenizer of a run is damaged.
    """
    sources: dict[str, Source] = {}
    for place in places:
        for checkpoint in _chosen(place, checkpoints):
            for source in _models_in(place, checkpoint, from_scratch=from_scratch):
                other = sources.setdefault(source.folder_name, source)
                if other.digest != source.digest:
                    raise ConfigError(
                        f"{other.place} and {source.place} are both called {source.name!r}: "
                        "fine-tune them one after the other, into a folder each, which `python -m "
                        "finetune table` takes together"
                    )
    return list(sources.values())


def _chosen(place: str, checkpoints: Sequence[str]) -> list[str | None]:
    """Return the `checkpoint` arguments of `load_pretrained`."""
    chosen: list[str | None] = []
    for word in checkpoints:
        if word == ALL:
            chosen += [folder.name for folder in checkpoints_of(Path(place))] or [None]
        elif word == NEWEST:
            chosen.append(None)
        else:
            chosen.append(word)
    return chosen


def _models_in(place: str, checkpoint: str | None, *, from_scratch: bool) -> list[Source]:
    found = load_pretrained(place, checkpoint=checkpoint)
    return [
        Source(
            found.place,
            found.name,
            found.step if pretrained else None,
            pretrained,
            _digest(found, pretrained=pretrained),
        )
        for pretrained in ((True, False) if from_scratch else (True,))
    ]


def _digest(found: Pretrained, *, pretrained: bool) -> str:
    """Return what changes with any weight, or where they are not used, with shape and tokenizer."""
    digest = hashlib.sha256()
    if not pretrained:
        digest.update(found.model.model_dump_json().encode())
        digest.update(found.text_encoder.tokenizer.to_str().encode())
        return digest.hexdigest()[:16]
    for name, weight in sorted(found.weights.items()):
        digest.update(name.encode())
        digest.update(weight.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
