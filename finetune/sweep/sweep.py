"""A sweep: all trials of one command, which of them are missing, and how they are run."""

import signal
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from tabulate import tabulate
from tqdm import tqdm

from data_prep.files.processors import cpu_count, threads_each
from data_prep.files.program import curves_command, shell_command
from data_prep.files.progress_bar import progress_bar
from data_prep.files.quoting import on_one_line
from finetune.protocol import Protocol
from finetune.report.page import CLASSES_FILE, print_table, save_classes
from finetune.report.score_table import chosen_trial, default_rule
from finetune.results.model_folder import MODEL_FOLDER, has_model, remove_model
from finetune.results.result import predictions_file, read_result, save_result
from finetune.results.sweep_results import (
    EndedTrial,
    Keep,
    ModelRef,
    ended_trials,
    read_sweep_record,
)
from finetune.sweep.references import TaskRef
from finetune.sweep.trial import Context, Message, Trial, TrialRunner, result_of
from finetune.tasks.task import TaskData
from pretrain.distributed.unusable_gpus import refuse_unusable_gpus
from pretrain.reports.words import counted
from pretrain.train.sweeps.pool import Worker, numbered, run_units

MOST_USES = 3  # commands to use kept models, printed


def trials_of(
    models: Iterable[ModelRef], tasks: Sequence[TaskRef], protocol: Protocol
) -> list[Trial]:
    """Return all trials; those that share rows and weights are neighbours."""
    return [
        Trial(model, task, rate, seed)
        for task in tasks
        for model in models
        for rate in protocol.learning_rates
        for seed in range(protocol.seeds)
    ]


@dataclass(frozen=True)
class TrialSweep:
    """The trials that one command requests."""

    folder: Path
    protocol: Protocol
    trials: Sequence[Trial]
    data: Mapping[str, TaskData]  # by task
    predicts_test: bool
    keep: Keep = "best"

    def missing(self) -> list[Trial]:
        """Return the trials that are still to be run; one that failed is.

        Raises:
            ConfigError: a result is damaged.
        """
        over = set()
        for folder, _, result in ended_trials(self.folder):
            has_all = result.status == "diverged"
            if result.status == "finished" and result.task in self.data:
                has_all = self.keep != "all" or has_model(folder)
            over |= {result.folder} if has_all else set()
        return [trial for trial in self.trials if trial.folder not in over]

    def lacks(self, trial: Trial) -> bool:
        """Return whether a chosen trial has no model that stays, or not all test predictions."""
        folder = self.folder / trial.folder
        splits = self.data[trial.task.name].test if self.predicts_test else ()
        has_all = all(predictions_file(folder, split).exists() for split in splits)
        return not has_all or (self.keep == "best" and not has_model(folder))

    def rows_read(self, task: str) -> int:
        """Return the number of rows that a trial trains on and scores, in all epochs."""
        data = self.data[task]
        of_tests = sum(map(len, data.test.values())) if self.predicts_test else 0
        of_epoch = self.rows_per_epoch(task) + sum(map(len, data.development.values()))
        return of_epoch * self.protocol.epochs_on(task) + of_tests

    def rows_per_epoch(self, task: str) -> int:
        """Return the number of training rows of a task."""
        return len(self.data[task].train) * self.protocol.orders_on(task)

    def steps(self, task: str) -> int:
        """Return the number of optimizer steps of a trial."""
        per_epoch = -(-self.rows_per_epoch(task) // self.protocol.batch)
        return per_epoch * self.protocol.epochs_on(task)


def describe_sweep(sweep: TrialSweep) -> str:
    """Return what would be run, for a dry run."""
    missing, every = (
        Counter(trial.task.name for trial in trials) for trials in (sweep.missing(), sweep.trials)
    )
    epochs = sweep.protocol.epochs_on
    rows = [
        [task, sweep.rows_per_epoch(task), epochs(task), sweep.steps(task)]
        + [every[task], every[task] - missing[task], missing[task]]
        for task in sweep.data
    ]
    names = ["task", "rows", "epochs", "steps per trial", "trials", "done", "to run"]
    protocol, models = sweep.protocol, dict.fromkeys(t.model.describe() for t in sweep.trials)
    rates = ", ".join(f"{rate:g}" for rate in protocol.learning_rates)
    seeds = counted(protocol.seeds, "seed")
    return "\n".join(
        [
            tabulate(rows, names, intfmt=",", colalign=("left", *["right"] * 6)),
            "",
            f"models: {', '.join(models)}",
            f"protocol {protocol.name}: learning rates {rates}, {seeds}, batch {protocol.batch}",
            f"to run: {missing.total():,} trials, "
            f"{sum(sweep.steps(task) * count for task, count in missing.items()):,} steps",
            f"results: {sweep.folder}",
        ]
    )


def run_sweep(sweep: TrialSweep, at_once: int | None) -> bool:
    """Run the missing trials, show the progress, and keep the models that are to stay.

    A trial writes its model before its result, so that a sweep that is killed at any moment holds
    what it needs to choose those that stay: the choice is made from the results on the disk.
    `at_once` None: one per GPU, or per core if there is no GPU.

    Returns:
        Whether a trial failed.

    Raises:
        ConfigError: torch cannot use the GPUs of this machine.
        SystemExit: a signal asked to stop; printed is how to continue.
    """
    refuse_unusable_gpus()
    missing = sweep.missing()
    over = len(sweep.trials) - len(missing)
    before = f", {over:,} {'is' if over == 1 else 'are'} over already" if over else ""
    print(f"{counted(len(missing), 'trial')} to {sweep.folder}{before}", flush=True)
    left = Counter(trial.group for trial in missing)

    def ended(trial: Trial) -> None:
        left[trial.group] -= 1
        if sweep.keep == "best" and not left[trial.group]:
            # Now rather than at the end: the models of all trials may not fit on the disk.
            remove_others(sweep.folder, [trial])

    has_failed = TrialsRunning(sweep, missing, ended).run(at_once)
    # Chosen only now that there are more trials, or of a command that kept no models.
    chosen = chosen_trials(sweep.folder, sweep.trials)
    lacking = list(filter(sweep.lacks, chosen))
    if lacking:
        print(f"{counted(len(lacking), 'chosen trial')} again, for its model or test predictions")
    has_failed |= TrialsRunning(sweep, lacking, lambda trial: None).run(at_once)
    if sweep.keep == "best":
        remove_others(sweep.folder, sweep.trials, chosen)  # not by what a repeat scored
    return has_failed


def chosen_trials(folder: Path, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trial of the table for each encoder on each task, from the results in the folder.

    It is that of the best learning rate whose score is the median. `trials` name the encoders and
    tasks; the chosen one may be of an earlier command.

    Raises:
        ConfigError: grid.json or a result is damaged.
    """
    record = read_sweep_record(folder)
    rule, chosen = default_rule(record.tasks if record else ()), []
    ended: dict[tuple[str, str], list[EndedTrial]] = {}
    for one in ended_trials(folder, record, record.metrics if record else {}):
        ended.setdefault((one.result.task, one.result.folder_name), []).append(one)
    for group, trial in {trial.group: trial for trial in trials}.items():
        found = chosen_trial(ended[group], rule) if group in ended else None
        if found is not None:
            rate, seed = found.result.learning_rate, found.result.seed
            chosen.append(replace(trial, learning_rate=rate, seed=seed))
    return chosen


def remove_others(folder: Path, trials: Sequence[Trial], kept: Sequence[Trial] = ()) -> None:
    """Remove the models of all trials of these encoders and tasks but the chosen ones."""
    chosen = {trial.folder for trial in kept or chosen_trials(folder, trials)}
    groups = {trial.group for trial in trials}
    for place, _, result in ended_trials(folder):
        if (result.task, result.folder_name) in groups and result.folder not in chosen:
            remove_model(place)


class TrialsRunning:
    """Trials of a sweep that are run now, and their progress."""

    def __init__(
        self, sweep: TrialSweep, trials: Sequence[Trial], on_end: Callable[[Trial], None]
    ) -> None:
        """Prepare; `on_end` is called with each trial that has a result."""
        self._sweep, self._trials, self._on_end = sweep, trials, on_end
        self._left = {trial: sweep.rows_read(trial.task.name) for trial in trials}
        self._total, self._bar, self._opened = sum(self._left.values()), None, ExitStack()
        self._say, self._remarks = numbered([trial.describe() for trial in trials]), set[str]()
        self._has_failed = False

    def run(self, at_once: int | None) -> bool:
        """Run them; return whether one failed; raises SystemExit as `run_sweep` does."""
        sweep, trials = self._sweep, self._trials
        if not trials:
            return False
        # By all trials, not the missing ones: results depend on the number of threads, which must
        # not change when a sweep is continued.
        devices, threads = divided(at_once, len(sweep.trials))
        digests = {name: found.labelled_digest for name, found in sweep.data.items()}
        keeps = sweep.keep != "none"
        context = Context(
            sweep.folder, sweep.protocol, sweep.predicts_test, keeps, threads, digests
        )
        workers = [Worker(partial(TrialRunner, context, each), self._receive) for each in devices]
        try:
            with self._opened:
                run_units(trials, workers, lambda trial, worker: worker.job(trial), self._ended)
        except SystemExit:
            print(
                f"Stopped; {len(sweep.missing()):,} of {len(sweep.trials):,} trials are left. "
                "The same command continues.",
                file=sys.stderr,
            )
            raise
        finally:
            for worker in workers:
                worker.end()
        return self._has_failed

    def _read(self, rows: int) -> None:
        """Show that rows were read; the clock starts with the first, the set-up before it apart."""
        if self._bar is None:
            bar = progress_bar("fine-tuning", self._total, "example", done=rows)
            self._bar = self._opened.enter_context(bar)
        else:
            self._bar.update(rows)

    def _receive(self, trial: Trial, message: Message) -> None:
        if isinstance(message, int):
            self._left[trial] -= message
            self._read(message)
            return
        line = on_one_line(f"{trial.task.name}: {message}")
        if line not in self._remarks:  # each trial of the task sends it
            tqdm.write(line)
        self._remarks.add(line)

    def _ended(self, trial: Trial, status: int | Exception, stopped: bool) -> None:
        folder = self._sweep.folder / trial.folder
        result = read_result(folder)
        if result is None and stopped:
            return
        if result is None:
            name = str(status)
            if isinstance(status, int) and status > 128:
                name = signal.Signals(status - 128).name
            memory = ", often for lack of memory: use fewer --at-once" if name == "SIGKILL" else ""
            reason = f"the worker process ended with {name}{memory}"
            result = result_of(trial, self._sweep.protocol, "failed", reason=reason)
            folder.mkdir(parents=True, exist_ok=True)  # it may have died before making it
            save_result(folder, result)
        self._has_failed |= result.status == "failed"
        self._read(self._left.pop(trial))  # also of what a trial that diverged has left
        splits = list(result.scores.values())  # of several the mean, in percent
        ending = [
            f"{name} {100 * statistics.fmean(split[name] for split in splits):.1f}"
            for name in (splits[0] if splits else ())
        ] or [result.status]
        line = ", ".join(filter(None, [*ending, result.reason, f"{result.seconds:.0f} s"]))
        self._say(trial.describe(), line)
        self._on_end(trial)


def divided(at_once: int | None, num_trials: int) -> tuple[list[str], int]:
    """Return the device of each worker, and the number of threads of each."""
    num_gpus = torch.cuda.device_count()
    count = min(at_once or num_gpus or cpu_count(), num_trials)
    devices = [f"cuda:{n % num_gpus}" if num_gpus else "cpu" for n in range(count)]
    return devices, threads_each(count)


def report(sweep: TrialSweep, *, has_failed: bool) -> None:
    """Print the table of the folder, its remarks and its place.

    Raises:
        SystemExit: with status 1, a trial failed.
    """
    classes = print_table([sweep.folder], step="all")
    save_classes(sweep.folder, classes)
    chosen = [sweep.folder / trial.folder for trial in chosen_trials(sweep.folder, sweep.trials)]
    kept = [place / MODEL_FOLDER for place in chosen if has_model(place)]
    for model in kept[:MOST_USES]:
        print(f"use a model: {shell_command('finetune', 'predict', model)} FILE")
    by_class = f" | by class: {sweep.folder / CLASSES_FILE}" if classes else ""
    print(f"results: {sweep.folder}{by_class} | curves: {curves_command(sweep.folder)}")
    if has_failed:
        print("The same command runs failed trials again", file=sys.stderr)
        raise SystemExit(1)
