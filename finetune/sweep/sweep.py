"""A sweep: all trials of one command, which of them are missing, and how they are run."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tabulate import tabulate

from data_prep.files.program import curves_command, shell_command
from data_prep.files.workers import cpu_count, threads_each
from finetune.models.kept_model import MODEL_FOLDER, has_model
from finetune.protocol import Protocol
from finetune.report.page import print_table
from finetune.results.result import TrialResult, read_result
from finetune.results.sweep_record import Keep
from finetune.sweep.keeping import chosen_trials, remove_others
from finetune.sweep.progress import SweepProgress
from finetune.sweep.references import ModelRef, TaskRef
from finetune.sweep.trial import Trial, TrialOutput, is_over
from finetune.sweep.workers import SweepContext, run_trials
from finetune.tasks.task import TaskData
from pretrain.distributed.unusable_gpus import refuse_unusable_gpus
from pretrain.reports.words import counted


def trials_of(
    models: Sequence[ModelRef], tasks: Sequence[TaskRef], protocol: Protocol
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
class Sweep:
    """The trials that one command requests."""

    folder: Path
    protocol: Protocol
    trials: Sequence[Trial]
    data: Mapping[str, TaskData]  # by task
    predicts_test: bool
    retries_failed: bool
    keep: Keep = "best"

    def missing(self) -> list[Trial]:
        """Return the trials that are still to be run."""
        return [trial for trial in self.trials if not self._is_over(trial)]

    def rows(self, task: str) -> int:
        """Return the number of rows that a trial trains on, in all epochs."""
        return self.rows_per_epoch(task) * self.protocol.epochs_on(task)

    def rows_per_epoch(self, task: str) -> int:
        """Return the number of training rows of a task."""
        return len(self.data[task].train) * self.protocol.orders_on(task)

    def steps(self, task: str) -> int:
        """Return the number of optimizer steps of a trial."""
        per_epoch = -(-self.rows_per_epoch(task) // self.protocol.batch)
        return per_epoch * self.protocol.epochs_on(task)

    def _is_over(self, trial: Trial) -> bool:
        splits = list(self.data[trial.task.name].test) if self.predicts_test else []
        return is_over(
            self.folder / trial.folder,
            test_splits=splits,
            retries_failed=self.retries_failed,
            needs_model=self.keep == "all",
        )


def describe_sweep(sweep: Sweep) -> str:
    """Return what would be run, for a dry run."""
    missing = [trial.task.name for trial in sweep.missing()]
    rows = [_described(sweep, task, missing.count(task)) for task in sweep.data]
    names = ["task", "rows", "epochs", "steps per trial", "trials", "over", "to run"]
    protocol, models = sweep.protocol, dict.fromkeys(t.model.describe() for t in sweep.trials)
    rates = ", ".join(f"{rate:g}" for rate in protocol.learning_rates)
    seeds = counted(protocol.seeds, "seed")
    return "\n".join(
        [
            tabulate(rows, names, intfmt=",", colalign=("left", *["right"] * 6)),
            "",
            f"models: {', '.join(models)}",
            f"protocol {protocol.name}: learning rates {rates}, {seeds}, batch {protocol.batch}",
            f"to run: {len(missing):,} trials, {sum(map(sweep.steps, missing)):,} steps, "
            f"{sum(map(sweep.rows, missing)):,} examples",
            f"results: {sweep.folder}",
        ]
    )


def _described(sweep: Sweep, task: str, to_run: int) -> list[str | int]:
    count = sum(trial.task.name == task for trial in sweep.trials)
    rows, epochs = sweep.rows_per_epoch(task), sweep.protocol.epochs_on(task)
    return [task, rows, epochs, sweep.steps(task), count, count - to_run, to_run]


def run_sweep(sweep: Sweep, num_workers: int | None) -> bool:
    """Run the missing trials, show the progress, and keep the models that are to stay.

    Args:
        sweep: of the command.
        num_workers: trials at once; None: one per GPU, or per core if there is no GPU.

    Returns:
        Whether a trial failed.

    Raises:
        ConfigError: torch cannot use the GPUs of this machine.
        KeyboardInterrupt: the user stopped it; printed is how to continue.
    """
    refuse_unusable_gpus()
    missing = sweep.missing()
    over = len(sweep.trials) - len(missing)
    before = f", {over:,} {'is' if over == 1 else 'are'} over already" if over else ""
    print(f"{counted(len(missing), 'trial')} to {sweep.folder}{before}", file=sys.stderr)
    left = Counter(trial.group for trial in missing)

    def ended(trial: Trial) -> None:
        left[trial.group] -= 1
        if sweep.keep == "best" and not left[trial.group]:
            # Now rather than at the end: the models of all trials may not fit on the disk.
            remove_others(sweep.folder, [trial])

    has_failed = _run(sweep, missing, num_workers, ended)
    if sweep.keep == "best":
        # Chosen only now that there are more trials, or of a command that kept no models.
        chosen = chosen_trials(sweep.folder, sweep.trials)
        lacking = [trial for trial in chosen if not has_model(sweep.folder / trial.folder)]
        has_failed |= _run(sweep, lacking, num_workers, lambda trial: None)
        remove_others(sweep.folder, sweep.trials)
    return has_failed


def _run(
    sweep: Sweep,
    trials: Sequence[Trial],
    num_workers: int | None,
    ended: Callable[[Trial], None],
) -> bool:
    """Run trials, show the progress, call `ended` with each; return whether one failed."""
    if not trials:
        return False
    # By all trials, not the missing ones: results depend on the number of threads, which must not
    # change when a sweep is continued.
    devices, threads = divided(num_workers, len(sweep.trials))
    digests = {name: (data.labelled_digest, data.test_digests) for name, data in sweep.data.items()}
    output = TrialOutput(predicts_test=sweep.predicts_test, keeps_model=sweep.keep != "none")
    context = SweepContext(sweep.folder, sweep.protocol, output, threads, digests)
    progress = SweepProgress({trial: sweep.rows(trial.task.name) for trial in trials})
    has_failed = False
    try:
        for trial, message in run_trials(trials, context, devices):
            progress.receive(trial, message)
            if isinstance(message, TrialResult):
                has_failed |= message.status == "failed"
                ended(trial)
    except KeyboardInterrupt:
        progress.close()
        print(
            f"Stopped; {len(sweep.missing()):,} of {len(sweep.trials):,} trials are left. "
            "The same command continues.",
            file=sys.stderr,
        )
        raise
    progress.close()
    return has_failed


def divided(num_workers: int | None, num_trials: int) -> tuple[list[str], int]:
    """Return the device of each worker, and the number of threads of each."""
    num_gpus = torch.cuda.device_count()
    count = min(num_workers or num_gpus or cpu_count(), num_trials)
    devices = [f"cuda:{n % num_gpus}" if num_gpus else "cpu" for n in range(count)]
    return devices, threads_each(count)


def report(sweep: Sweep, *, has_failed: bool) -> None:
    """Print the table of the folder, its remarks and its place.

    Raises:
        SystemExit: with status 1, a trial of this command failed, now (`has_failed`) or before.
    """
    print_table([sweep.folder], step="all")
    results = [read_result(sweep.folder / trial.folder) for trial in sweep.trials]
    chosen = [] if sweep.keep == "none" else chosen_trials(sweep.folder, sweep.trials)
    places = {trial: sweep.folder / trial.folder for trial in chosen}
    kept = {trial: place / MODEL_FOLDER for trial, place in places.items() if has_model(place)}
    for trial, model in kept.items():
        print(f"model of {trial.task.name}, {trial.model.describe()}: {model}")
    if kept:
        place = next(iter(kept.values()))
        print(f"use it: {shell_command('finetune', 'predict', place)} FILE")
    print(f"results: {sweep.folder} | curves: {curves_command(sweep.folder)}")
    has_failed |= any(result is not None and result.status == "failed" for result in results)
    if has_failed:
        print("Repeat the command with --retry-failed to run failed trials again", file=sys.stderr)
        raise SystemExit(1)
