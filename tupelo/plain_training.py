"""The model of a recipe, and what a training loop of plain PyTorch needs to train it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from pretrain.config.batch import micro_sequences
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import settings_with
from pretrain.config.settings import RunSettings
from pretrain.convert.initial_weights import load_initial_weights
from pretrain.data.batches import HeldOutBatches, MaskedBatch, Place, TrainingBatches, batches_from
from pretrain.data.shards import existing_shards, open_data, with_tokenizer
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.objectives.held_out import HeldOutSums
from pretrain.model.objectives.objective import Objective
from pretrain.schedules.layer_drop import check_layer_drop
from pretrain.schedules.learning_rate import learning_rate_at
from pretrain.schedules.step_plan import Schedule, StepPlan
from tupelo.evaluation_mode import evaluation_mode


def settings(
    recipe: str | Path | RunSettings, values: Mapping[str, Any] | None = None
) -> RunSettings:
    """Read the settings of a recipe or a run, with some values changed.

    Args:
        recipe: name of a recipe, a .toml file, a run folder, or settings.
        values: {"model.width": 128, ...}: the names of the options of `tupelo train`, without the
            dashes.

    Raises:
        ConfigError: unknown recipe or name, wrong type, or an impossible combination.
    """
    chosen = settings_with(recipe, values or {})
    check_layer_drop(chosen.layer_drop, chosen.model.num_layers)
    learning_rate_at(0, chosen.learning_rate, chosen.steps)  # refuses an unknown schedule
    return chosen


def build(recipe: str | Path | RunSettings, values: Mapping[str, Any] | None = None) -> Objective:
    """Build the model that `tupelo train` trains, with the weights that it starts from.

    Args:
        recipe: as of `settings`; its `seed` determines new weights, its `initial_weights` others.
        values: as of `settings`.

    Returns:
        A torch module on the CPU, in training mode and fp32, that maps (ids_BS, positions_M,
        labels_M, branch_scales) to the loss in nats. Its `encoder` maps ids_BS (int64) to hidden
        states x_BSD, given `branch_scales` (a number per block: 0 skips it, others multiply its
        branches; None: all run) and `lengths_B` (tokens of each row, int32; None: no padding).
        Letters: B rows, S tokens of a row, D width, M predicted tokens, which are at
        `row * S + column`.

    Raises:
        ConfigError: as of `settings`, or they name a part or weights that do not exist or fit; or
            with model.output_bias=frequencies, which are counted: as of `training_batches`.
        ShardError: the shards that are counted are damaged.
    """
    chosen = settings(recipe, values)
    if chosen.model.transformers is not None and (shards := existing_shards(chosen)) is not None:
        chosen = with_tokenizer(chosen, shards)
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        torch.default_generator.manual_seed(chosen.seed)
        model = build_objective(chosen.model, chosen.objective, chosen.electra)
    load_initial_weights(model, chosen)
    return model


def step_plans(settings: RunSettings) -> Iterator[StepPlan]:
    """Iterate over the plans of the optimizer steps of a run: learning rate and layer drop.

    Args:
        settings: of the run.

    Returns:
        For each step its `learning_rate`; `theta`, the keep ratio of the last block (Zhang & He
        2020); `branch_scales`, for each micro-batch a number per block; and
        `micro_batches(batches)`, which pairs the next batches of an iterator with them.

    Raises:
        ConfigError: the run has a time budget, so that its schedule follows the clock of
            `tupelo train`.
    """
    if settings.hours is not None:
        raise ConfigError(
            f"hours={settings.hours:g}: the schedule follows the clock of `tupelo train`; set "
            "hours to None, and steps to their number"
        )
    schedule = Schedule(settings, world_size=1)
    return map(schedule.plan, range(1, settings.steps + 1))


def training_batches(settings: RunSettings) -> Iterator[MaskedBatch]:
    """Iterate without end over the micro-batches that `tupelo train` reads on one process.

    With batch.micro_sequences=auto they are as large as they can be: of a whole step.

    Args:
        settings: with `data.shards`, or a `data.corpus` of which `tupelo prepare` has built them.

    Returns:
        (ids_BS, positions_M, labels_M) on the CPU, int64: ids with some tokens hidden, their flat
        positions `row * S + column`, and their true ids.

    Raises:
        ConfigError: there are no shards, or they do not fit the settings.
        ShardError: they are damaged.
    """
    batches = TrainingBatches(open_data(settings), settings, _place(settings))
    return batches_from(batches, 0, None, pin_memory=False)


def held_out_loss(model: Objective, settings: RunSettings) -> float:
    """Return the loss in nats that `tupelo train` would log for a model: of all blocks, no dropout.

    Args:
        model: as of `build`, on any device; it stays in the mode that it is in.
        settings: as of `training_batches`; `evaluation.rows` are read.

    Returns:
        The mean over all predictions of the held-out rows, comparable with evals.jsonl of runs
        that read the same shards.

    Raises:
        ConfigError, ShardError: as of `training_batches`.
    """
    batches = HeldOutBatches(open_data(settings), settings, _place(settings))
    device = next(model.parameters()).device
    sums = HeldOutSums()
    with evaluation_mode(model):
        for batch in (batches[number] for number in range(len(batches))):
            loss = model(*(part.to(device) for part in batch))
            sums.add(model, loss, batch.num_predictions())
    return sums.evaluation(sums.table()).loss


def _place(settings: RunSettings) -> Place:
    return Place(micro_sequences(settings, 1), rank=0, world_size=1)
