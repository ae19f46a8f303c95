"""What a sweep will do, in words, before it does it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from data_prep.settings import PYTHON_DOCS
from pretrain.config.recipe_files import summary_of
from pretrain.config.settings import RunSettings
from pretrain.data.shards import shards_folder
from pretrain.launching.launch_plan import LaunchPlan
from pretrain.launching.preparation import must_build
from pretrain.launching.sweeps.arms import SweepRun
from pretrain.launching.sweeps.forecast import Forecast, roughly
from pretrain.launching.sweeps.smoke import NOTE
from pretrain.launching.sweeps.spec import Tuning
from pretrain.launching.sweeps.sweep import Sweep
from pretrain.reports.terminal import paragraph
from pretrain.reports.words import amount, counted, listed
from pretrain.schedules.horizon import SECONDS_PER_HOUR


def describe_sweep(
    sweep: Sweep,
    by_arm: Sequence[Sequence[SweepRun]],
    *,
    folder: Path,
    plans: Sequence[LaunchPlan],
    width: int,
) -> str:
    """Return the arms, the seeds, the length of a run, the data and the place, in lines.

    Args:
        sweep: to describe.
        by_arm: its runs.
        folder: of the sweep.
        plans: of the starts of runs, as many as are trained together.
        width: of a line, in letters.
    """
    runs = [run for arm in by_arm for run in arm]
    done = sum(run.is_finished for run in runs)
    order = _order(plans)
    seeds = counted(len(by_arm[0]), "seed")
    title = f"{counted(len(by_arm), 'arm')} with {seeds}, so {counted(len(runs), 'run')}, {order}"
    finished = f"; {done} of them {'is' if done == 1 else 'are'} finished" if done else ""
    names = max(len(arm.name) for arm in sweep.arms) + 2
    lines = [paragraph(f"{title}, into {folder}{finished}:", width)]
    for arm in sweep.spec.arms:
        summary = summary_of(arm.recipe) or arm.recipe
        if arm.changes:
            summary = f"{arm.recipe} with {arm.changes}"
        first = f"  {arm.name:{names}}"
        lines.append(paragraph(summary, width, first=first, rest=" " * len(first)))
    rows = [*_length_rows(sweep, len(runs), len(plans)), _data_row(sweep)]
    if sweep.spec.tuning is not None:
        rows.append(("before", describe_tuning(sweep.spec.tuning)))
        own = [arm for arm in sweep.spec.arms if arm.points]
        rows += [("before", f"{arm.name} tries instead {_tried(arm.points)}") for arm in own]
    if sweep.is_smoke_test:
        rows.append(("note", NOTE))
    lines += [paragraph(text, width, first=f"{name}: ", rest="  ") for name, text in rows]
    return "\n".join(lines)


def describe_time(forecast: Forecast, runs: Sequence[SweepRun], *, at_once: int, width: int) -> str:
    """Return how long a run of each arm, and all that is left, take here, in lines."""
    left = [run for run in runs if not run.is_finished]
    whole = forecast.left(left, [], at_once)
    if whole is None or not left:
        return ""
    longest: dict[str, float] = {}
    for run in left:
        longest[run.arm.name] = max(forecast.of(run) or 0.0, longest.get(run.arm.name, 0.0))
    arms = listed([f"{arm} {roughly(seconds)}" for arm, seconds in longest.items()])
    text = f"about {roughly(whole)} from here on this machine under its present load; a run: {arms}"
    return paragraph(text, width, first="time: ", rest="  ") + "\n"


def describe_tuning(tuning: Tuning) -> str:
    """Return what each arm tries before its runs."""
    rungs = ""
    if len(tuning.rungs) > 1:
        shares = ", ".join(f"{share:.0%}" for share in tuning.rungs)
        rungs = f", for {shares} of a run, of which the better half goes on each time"
    seeds = counted(tuning.seeds, "seed")
    return (
        f"each arm tries {_tried(tuning.points)} with {seeds} of its own{rungs}; the best is taken"
    )


def _tried(points: Sequence[Mapping[str, str]]) -> str:
    tried = {name: [point[name] for point in points] for name in points[0]}
    return listed([f"{name} {', '.join(dict.fromkeys(each))}" for name, each in tried.items()])


def _order(plans: Sequence[LaunchPlan]) -> str:
    if len(plans) == 1:
        return "one after the other"
    threads = plans[0].threads
    where = "GPUs of their own" if threads is None else f"{counted(threads, 'thread')} each"
    return f"{len(plans)} at once, on {where}"


def _length_rows(sweep: Sweep, runs: int, at_once: int) -> list[tuple[str, str]]:
    by_length: dict[str, list[str]] = {}
    for arm in sweep.arms:
        by_length.setdefault(_length(arm.settings), []).append(arm.name)
    if len(by_length) > 1:
        return [(f"each run of {listed(names)}", text) for text, names in by_length.items()]
    (text,) = by_length
    hours = sweep.arms[0].settings.hours
    if hours is None:
        return [("each run", text)]
    rounds = -(-runs // at_once)
    whole = roughly(rounds * hours * SECONDS_PER_HOUR)
    return [("each run", f"{text}; {whole} in all, besides evaluation and starts")]


def _length(settings: RunSettings) -> str:
    rows, tokens = settings.batch.global_sequences, settings.data.sequence_length
    if settings.hours is not None:
        time = roughly(settings.hours * SECONDS_PER_HOUR)
        return f"{time} of training in steps of {rows:,} x {tokens:,} tokens, whatever the speed"
    whole = amount(settings.steps * rows * tokens, "tokens")
    return f"{settings.steps:,} steps of {rows:,} x {tokens:,} tokens, {whole} tokens in all"


def _data_row(sweep: Sweep) -> tuple[str, str]:
    settings = sweep.arms[0].settings  # of the same shards as those of all arms
    text = f"{shards_folder(settings)}, which is there"
    if must_build(settings):
        corpus = settings.data.corpus
        time = "half a minute on two cores" if corpus == (PYTHON_DOCS,) else "once"
        text = f"built first from {listed(corpus)} ({time}) into {shards_folder(settings)}"
    return "data", text
