"""References to models and tasks: small enough for every trial, and loadable in a worker."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.files.program import shell_command
from finetune.results.model_folder import is_model
from finetune.results.sweep_results import ModelRef
from finetune.tasks.custom import OwnTask, read_own
from finetune.tasks.suite import Suite
from finetune.tasks.suite_files import read_task
from finetune.tasks.task import Task, TaskData
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import RUN_FILE

if TYPE_CHECKING:
    from pretrain.convert.pretrained import Pretrained

NEWEST, ALL = "newest", "all"


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
        """Read the examples; raises as `read_own` and `read_task` do."""
        if isinstance(self.task, OwnTask):
            return read_own(self.task)
        assert self.suite is not None
        return read_task(self.suite, self.task, self.place)


def read_model_refs(
    places: Sequence[str],
    checkpoints: Sequence[str],
    *,
    from_scratch: bool,
    recorded: Sequence[ModelRef] = (),
) -> list[ModelRef]:
    """Find the models, and load each once.

    Runs of one name, such as the seeds of an arm, go by the names of their folders; recorded models
    by the names that they have: under another one their trials would be repeated.

    Args:
        places: as `load_pretrained` takes them, or folders of fine-tuned models.
        checkpoints: of the runs among them: "newest", "all", or steps.
        from_scratch: whether each encoder is fine-tuned with new weights too.
        recorded: models of earlier commands on the folder of the sweep.

    Raises:
        ConfigError: there is no such model or checkpoint, or two have the same name.
        ShardError: the tokenizer of a run is damaged.
    """
    from pretrain.checkpoint.folders import checkpoints_of  # torch takes seconds

    found = {
        place: [
            ModelRef(
                model=loaded.name,
                source=loaded.place,
                step=loaded.step if pretrained else None,
                pretrained=pretrained,
                digest=_digest(loaded, pretrained=pretrained),
            )
            for word in checkpoints
            for every in [[folder.name for folder in checkpoints_of(Path(place))] or [NEWEST]]
            for name in (every if word == ALL else [word])
            for checkpoint in [None if name == NEWEST else name]
            for loaded in [load_model(place, checkpoint)]
            for pretrained in ((True, False) if from_scratch else (True,))
        ]
        for place in places
    }
    names = Counter(name for refs in found.values() for name in {ref.model for ref in refs})
    names_of: dict[tuple[str, int | None, bool], list[str]] = {}
    for model in recorded:
        names_of.setdefault((model.digest, model.step, model.pretrained), []).append(model.model)
    models: dict[str, ModelRef] = {}
    for place, refs in found.items():
        for ref in refs:
            is_repeated = names[ref.model] > 1 and (Path(place) / RUN_FILE).is_file()
            name = Path(place).resolve().name if is_repeated else ref.model
            known = names_of.get((ref.digest, ref.step, ref.pretrained), [name])
            model = ref.model_copy(update={"model": name if name in known else known[0]})
            if not ref.pretrained:  # other seeds of pre-training are the same model then
                names_of.setdefault((ref.digest, ref.step, False), [model.model])
            other = models.setdefault(model.folder_name, model)
            if other.digest != model.digest:
                raise ConfigError(
                    f"{other.source} and {model.source} have the same name {model.model!r}: "
                    "fine-tune them separately, each into its own folder, and give both "
                    f"folders to {shell_command('finetune', 'table')}"
                )
    return list(models.values())


def load_model(place: str, checkpoint: str | None = None) -> "Pretrained":
    """Load a pre-trained model, or the encoder of a fine-tuned one.

    Raises:
        ConfigError: there is none, or transformers has no head for it.
    """
    from finetune.models.kept_model import as_pretrained
    from finetune.training.model import task_model
    from finetune.training.targets import Classes
    from pretrain.convert.pretrained import load_pretrained
    from pretrain.model.shapes import shapes_only

    if checkpoint is None and is_model(Path(place)):
        return as_pretrained(Path(place))
    found = load_pretrained(place, checkpoint=checkpoint)
    with shapes_only():
        task_model(found.model, Classes(2))  # transformers has no head for some of its models
    return found


def _digest(found: "Pretrained", *, pretrained: bool) -> str:
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
