"""The plan of a run: its speed on this machine is measured, and all else follows from that."""

import argparse
import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_settings import CliSettingsSource

from data_prep.files.atomic import save_text
from data_prep.files.program import shell_command
from data_prep.shards.format import ShardSet
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import read_settings
from pretrain.config.settings import RunSettings, flat
from pretrain.data.shards import existing_shards, shards_folder
from pretrain.distributed.ranks import Ranks, on_first_rank, start_ranks, stop_ranks
from pretrain.engine.launch import build_engine, check_machine, checked_settings
from pretrain.model.cost import parameters_by_group
from pretrain.reports.terminal import fitting_table, terminal_width
from pretrain.reports.words import amount
from pretrain.schedules.fitting import fitted
from pretrain.schedules.horizon import SECONDS_PER_HOUR
from pretrain.schedules.layer_drop import keep_probabilities
from pretrain.schedules.learning_rate import learning_rate_at
from pretrain.schedules.run_thetas import mean_theta
from pretrain.schedules.step_plan import finished_before, horizon_of_steps
from pretrain.train.benchmark import (
    MeasuredSteps,
    Speed,
    endless_batches,
    measure_speed,
)
from pretrain.train.checks import obstacles
from pretrain.train.recording.provenance import environment
from pretrain.train.request import RunRequest, folder_of
from pretrain.train.summary import cost_row, disk_rows, in_columns


class Measured(NamedTuple):
    """What was measured of a recipe."""

    settings: RunSettings  # as they are executed
    shards: ShardSet | None
    speed: Speed
    execution: str


def plan(read: Callable[[], dict[str, RunSettings]], arguments: argparse.Namespace) -> None:
    """Measure the speed of each recipe, and print what follows.

    Of one recipe this is its plan and the commands that train it, of several a table.

    Args:
        read: reads recipes and command line, and returns settings by recipe; called on the first
            rank.
        arguments: the command line: --seconds, --json, and what the printed commands repeat.

    Raises:
        UserError: a run cannot be executed on this machine, or the JSON file cannot be written.
    """
    ranks = start_ranks()
    try:
        given = on_first_rank(ranks, read)
        only = next(iter(given)) if len(given) == 1 else None
        measured = {
            recipe: _measure(
                request=RunRequest(settings, folder_of(None, recipe, settings)),
                ranks=ranks,
                seconds=arguments.seconds,
                notes_obstacles=only is not None,
            )
            for recipe, settings in given.items()
        }
        if not ranks.is_first:
            return
        if only is not None:
            settings, shards, speed, execution = measured[only]
            print(describe_plan(settings, speed, shards, ranks, execution))
            print(f"\n{commands(arguments, only, settings, speed.seconds_per_step, ranks)}")
        else:
            print(speed_table(measured))
        if arguments.json is not None:
            _save_numbers(arguments.json, measured)
    finally:
        stop_ranks()


def _measure(
    request: RunRequest, ranks: Ranks, seconds: float, *, notes_obstacles: bool
) -> Measured:
    given = request.settings
    settings, ds_config = on_first_rank(ranks, lambda: checked_settings(given, ranks))
    on_first_rank(ranks, lambda: check_machine(settings, ds_config, ranks.device))
    if ranks.is_first and notes_obstacles:
        for obstacle in obstacles(request, settings, ds_config, ranks).values():
            print(f"note: a start would be refused: {obstacle}")
    shards = on_first_rank(ranks, lambda: existing_shards(settings))
    engine = build_engine(settings, ds_config, ranks)
    executed = engine.micro_batches.of(settings)
    batches = endless_batches(executed, shards, ranks)
    steps = MeasuredSteps(engine, batches, executed, mean_theta(executed))
    return Measured(executed, shards, measure_speed(steps, seconds), engine.describe())


def speed_table(measured: Mapping[str, Measured]) -> str:
    """Return how long the steps of each recipe take, without evaluation and checkpoints."""
    rows = []
    for recipe, (settings, _, speed, _) in measured.items():
        steps = steps_within(settings, speed.seconds_per_step)
        tokens = settings.batch.global_sequences * settings.data.sequence_length
        rows.append(
            (
                Path(recipe).name.removesuffix(".toml"),
                f"{speed.seconds_per_step:.4g}",
                f"{tokens / speed.seconds_per_step:,.0f}",
                f"{steps:,}",
                amount(steps * tokens, "tokens"),
                amount(steps * speed.seconds_per_step, "training_seconds"),
            )
        )
    headers = ("recipe", "seconds per step", "tokens/s", "steps", "tokens", "time")
    return fitting_table(headers, rows, terminal_width())


def _save_numbers(file: Path, measured: Mapping[str, Measured]) -> None:
    speeds = {recipe: found.speed for recipe, found in measured.items()}
    numbers = {
        "seconds_per_step": {recipe: speed.seconds_per_step for recipe, speed in speeds.items()},
        "measured_seconds": sum(sum(speed.seconds) for speed in speeds.values()),
    }
    try:
        save_text(file, json.dumps(numbers, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; choose another --json") from None


def steps_within(settings: RunSettings, seconds_per_step: float) -> int:
    """Return how many steps fit into the hours; without hours, the steps of the settings."""
    if settings.hours is None:
        return settings.steps
    return max(1, int(settings.hours * SECONDS_PER_HOUR / seconds_per_step))


def describe_plan(
    settings: RunSettings,
    speed: Speed,
    shards: ShardSet | None,
    ranks: Ranks,
    execution: str,
) -> str:
    """Return what was measured and what follows from it, as text."""
    steps = steps_within(settings, speed.seconds_per_step)
    tokens = settings.batch.global_sequences * settings.data.sequence_length
    low, median, high = speed.quartiles
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)["total"]
    rows = [
        (
            "measured",
            f"{sum(speed.steps):,} optimizer steps in {sum(speed.seconds):.1f} s, after "
            f"{speed.uncounted_steps} that are not counted",
        ),
        ("on", f"{ranks.world_size} rank(s), {environment()['device']}"),
        ("with", execution),
        ("batches", _batches_in_words(settings, shards)),
        ("blocks", _blocks_in_words(settings, speed)),
        (
            "seconds per step",
            f"{speed.seconds_per_step:.4g}; median of intervals {median:.4g}, middle half "
            f"{low:.4g} to {high:.4g}",
        ),
        ("tokens/s", f"{tokens / speed.seconds_per_step:,.0f}"),
        _answer(settings, steps, steps * tokens, steps * speed.seconds_per_step),
        ("passes over the text", _passes_in_words(settings, shards, steps)),
        *_schedule_rows(settings, steps),
        ("not in this time", "evaluation and checkpoints"),
        ("parameters", f"{parameters / 1e6:.2f} M"),
        *disk_rows(settings.model_copy(update={"steps": steps, "hours": None}), shards),
        cost_row(steps * speed.seconds_per_step, ranks),
    ]
    return in_columns(rows)


def commands(
    arguments: argparse.Namespace,
    name: str,
    settings: RunSettings,
    seconds_per_step: float,
    ranks: Ranks,
) -> str:
    """Return the commands that train what was planned: for so many steps, and for so long."""
    source: CliSettingsSource[argparse.ArgumentParser] = arguments.source
    of_recipe = argparse.Namespace(**{**vars(arguments), "recipe": name})
    recipe = flat(read_settings(of_recipe, source).model_dump())
    steps = steps_within(settings, seconds_per_step)
    changes: dict[str, Any] = {
        name: value for name, value in fitted(settings, steps).items() if value != recipe[name]
    }
    if not isinstance(recipe["layer_drop.gamma"], float):
        changes.pop("layer_drop.gamma", None)  # it is in the DeepSpeed JSON, and must stay as there
    given = {name: vars(arguments).get(name) for name in recipe}
    by_steps = {**given, **changes, "hours": None}
    if recipe["hours"] is not None and given["hours"] is None:
        by_steps["hours"] = "none"  # against the recipe
    hours = settings.hours or steps * seconds_per_step / SECONDS_PER_HOUR
    by_hours = {**given, "hours": f"{hours:.4g}" if settings.hours is None else f"{hours:.10g}"}
    launcher, note = shell_command(), ""
    if ranks.world_size > 1:
        launcher = f"torchrun --nproc-per-node {ranks.world_size} -m pretrain"
        note = " (or with the launcher that started this)"
    start = ["train", name]
    if arguments.corpus:
        start += ["--corpus", *arguments.corpus]
    return (
        f"Train it{note}:\n  {launcher} {shlex.join([*start, *_options(by_steps)])}\n"
        "or until the time is up, whatever the speed does:\n"
        f"  {launcher} {shlex.join([*start, *_options(by_hours)])}"
    )


def _options(values: dict[str, Any]) -> list[str]:
    """Return values by name as a command line has them; None is left out."""
    words = []
    for name, value in values.items():
        for part in value if isinstance(value, list) else [value]:
            words += [] if part is None else [f"--{name}", str(part)]
    return words


def _batches_in_words(settings: RunSettings, shards: ShardSet | None) -> str:
    if shards is None:
        return "random ids; there are no shards yet, so reading them is not measured"
    return f"real ones, from the shards in {shards_folder(settings)}"


def _blocks_in_words(settings: RunSettings, speed: Speed) -> str:
    num_layers, theta = settings.model.num_layers, mean_theta(settings)
    if settings.layer_drop.schedule == "none":
        return f"all {num_layers} run in every step"
    expected = sum(keep_probabilities(theta, num_layers, settings.layer_drop))
    return (
        f"{speed.blocks:.2f} of {num_layers} ran on average, {expected:.2f} expected: coins at "
        f"theta {theta:.3f}, its mean over the run"
    )


def _passes_in_words(settings: RunSettings, shards: ShardSet | None, steps: int) -> str:
    if shards is None:
        return "not known before the shards are built"
    rows = shards.split("train").num_rows
    return f"{steps * settings.batch.global_sequences / rows:.3g} ({rows:,} rows)"


def _answer(settings: RunSettings, steps: int, tokens: int, seconds: float) -> tuple[str, str]:
    in_words = f"{amount(tokens, 'tokens')} tokens"
    if settings.hours is None:
        return f"{steps:,} steps take", f"{amount(seconds, 'training_seconds')}, for {in_words}"
    return f"{settings.hours:g} h allow", f"{steps:,} steps, {in_words}"


def _schedule_rows(settings: RunSettings, steps: int) -> list[tuple[str, str]]:
    rate = settings.learning_rate
    scaled = fitted(settings, steps).get("learning_rate.decay_steps")
    fitting = rate.model_copy(update={"decay_steps": scaled})
    final = learning_rate_at(finished_before(steps), fitting, steps)
    horizon, last_step = horizon_of_steps(settings), finished_before(settings.steps)
    own = learning_rate_at(horizon.position(last_step), rate, horizon.span(last_step))
    if steps == settings.steps:
        final = own
    return [
        ("warm-up", f"{round(rate.warmup_ratio * steps):,} steps, to {rate.peak:g}"),
        (
            "final learning rate",
            f"{final:.3g} with {rate.schedule}, {final / rate.peak:.2%} of the peak "
            f"(the recipe's own {settings.steps:,} steps: {own / rate.peak:.2%})",
        ),
    ]
