"""The runs that are analysed: their models at checkpoints, and the rows they are measured on.

Every number of an analysis comes from a model in evaluation mode, in fp32 on the CPU, and from
held-out rows with fixed masks, which are the same for all runs on the same shards.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from data_prep.files.progress_bar import progress_bar
from data_prep.masking import IGNORED
from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import read_manifest
from pretrain.checkpoint.folders import checkpoints_of, newest_checkpoint, step_of
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import settings_with
from pretrain.config.settings import RunSettings
from pretrain.convert.initial_weights import load_initial_weights
from pretrain.convert.pretrained import chosen_checkpoint, load_pretrained
from pretrain.data.batches import HeldOutBatches, MaskedBatch, Place
from pretrain.data.shards import num_held_out_sequences, open_data
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.objectives.objective import Objective

# Of a micro-batch: the intermediate tensors of BERT-Base then take about 2 GB with gradients.
TOKENS_AT_ONCE = 4096

Measure = TypeVar("Measure")


class Scope(NamedTuple):
    """What of the runs is looked at."""

    rows: int  # held-out rows at most
    shards: Path | None = None  # where the shards of the runs are; None: where their settings say
    # Of the checkpoint, 0 for the weights at the start; None: the analysis decides.
    step: int | None = None
    over_training: bool = False  # without a step, all checkpoints and step 0, instead of the newest


@dataclass(frozen=True)
class Subject:
    """A run, and the steps at which it is looked at."""

    label: str
    folder: Path
    settings: RunSettings
    steps: tuple[int, ...]  # ascending; 0: the weights at the start

    def model(self, step: int) -> Objective:
        """Return the model after `step` steps, in evaluation mode and fp32.

        Raises:
            ConfigError: the checkpoint is damaged.
            ShardError: step 0 needs the shards, and they are damaged.
        """
        kind = self.settings.model, self.settings.objective, self.settings.electra
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.settings.seed)
            model = build_objective(*kind)
        if step == 0 and 0 not in map(step_of, checkpoints_of(self.folder)):
            load_initial_weights(model, self.settings, self._shards())
        else:
            model.load_state_dict(load_pretrained(self.folder, checkpoint=step).weights)
        return model.eval()

    def batches(self) -> list[MaskedBatch]:
        """Return the held-out rows with their fixed masks.

        The last batch may be filled with rows in which nothing is predicted.

        Raises:
            ConfigError: the shards are missing, or are not those of the run.
            ShardError: they are damaged.
        """
        length = self.settings.data.sequence_length
        shards = self._shards()
        most = num_held_out_sequences(shards, self.settings)
        at_once = min(most, max(1, TOKENS_AT_ONCE // length))
        batches = HeldOutBatches(shards, self.settings, Place(at_once, rank=0, world_size=1))
        return [batches[number] for number in range(len(batches))]

    def _shards(self) -> ShardSet:
        shards = open_data(self.settings)
        if shards.manifest.tokenizer != read_manifest(self.folder).tokenizer:
            raise ConfigError(
                f"the shards that {self.folder} would be measured on have another tokenizer than "
                "it was trained with; name its own with --shards"
            )
        return shards


def read_subjects(folders: Sequence[Path], scope: Scope) -> list[Subject]:
    """Read the settings of runs, and choose the steps at which each is looked at.

    Raises:
        ConfigError: a folder holds no run, or a run without a checkpoint, or not the one asked for;
            or one run is named twice.
    """
    places = [folder.resolve() for folder in folders]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise ConfigError(f"{folders[number]} is named twice; name each run once")
    return [
        _read(folder, label, scope) for folder, label in zip(folders, _labels(places), strict=True)
    ]


def measured_at_steps(
    stage: str,
    subjects: Sequence[Subject],
    measure: Callable[[Objective, Sequence[MaskedBatch]], Measure],
) -> dict[str, dict[int, Measure]]:
    """Return what `measure` finds of each run at each of its steps, and show the progress."""
    found: dict[str, dict[int, Measure]] = {}
    with progress_bar(stage, sum(len(subject.steps) for subject in subjects), "model") as bar:
        for subject in subjects:
            batches, of_run = subject.batches(), found.setdefault(subject.label, {})
            for step in subject.steps:
                of_run[step] = measure(subject.model(step), batches)
                bar.update(1)
    return found


@contextlib.contextmanager
def inputs_of(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Collect the first input of each module, in the order in which they run."""
    found: list[Tensor] = []
    with contextlib.ExitStack() as hooks:
        for module in modules:
            hook = module.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
            hooks.enter_context(hook)
        yield found


@contextlib.contextmanager
def states_of(blocks: nn.ModuleList) -> Iterator[list[Tensor]]:
    """Collect x_l, l = 0 .. L: the input of each block, and the output of the last one."""
    with (
        inputs_of(list(blocks)) as found,
        blocks[-1].register_forward_hook(lambda _, inputs, output: found.append(output)),
    ):
        yield found


@torch.no_grad()
def encoder_inputs(model: Objective, batch: MaskedBatch) -> Tensor:
    """Return the ids_BS that the objective gives to its encoder, of rows with predictions.

    Other rows fill the batch.
    """
    with inputs_of([model.encoder]) as found:
        model(*batch)
    return found[0][batch.labels_M.view(len(batch.ids_BS), -1).ne(IGNORED).any(1)]


def _read(folder: Path, label: str, scope: Scope) -> Subject:
    newest_checkpoint(folder)  # refuses what is no run, and one without a checkpoint
    shards = {} if scope.shards is None else {"data.shards": scope.shards}
    settings = settings_with(folder, {"evaluation.rows": scope.rows, **shards})
    if settings.model.transformers is not None:
        raise ConfigError(f"{folder} trained a model of transformers; analyses read our own")
    return Subject(label, folder, settings, _steps(folder, settings, scope))


def _steps(folder: Path, settings: RunSettings, scope: Scope) -> tuple[int, ...]:
    found = [step_of(checkpoint) for checkpoint in checkpoints_of(folder)]
    can_begin = settings.initial_weights is None or 0 in found
    if scope.step == 0 and can_begin:
        return (0,)
    if scope.step is not None:
        return (step_of(chosen_checkpoint(folder, scope.step)),)
    if not scope.over_training:
        return (found[-1],)
    return tuple(sorted({*found, *([0] if can_begin else [])}))


def _labels(places: Sequence[Path]) -> list[str]:
    """Return the names of folders, with the folders above them where names are equal."""
    names = [place.name for place in places]
    if len(set(names)) == len(names):
        return names
    shared = os.path.commonpath(places)
    return [os.path.relpath(place, shared).replace(os.sep, "-") for place in places]
