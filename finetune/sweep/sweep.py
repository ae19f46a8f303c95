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
from pretrain.config.errors import ConfigError
from pretrain.distributed.unusable_gpus import refuse_unusable_gpus
from pretrain.reports.words import amount, counted

# Cost of a row's share of the optimizer step, in letters of text: measured with 4 layers of width
# 256 on a CPU and 32 rows of 9 to 75 tokens (CoLA's and RTE's).
OPTIMIZER_LETTERS = 50
KEPT: dict[Keep, str] = {
    "best": "of each model on each task, that of the best learning rate's median seed",
    "all": "the models of all trials",
    "none": "no models",
}


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

    def row_cost(self, task: str) -> float:
        """Return the training time of a row relative to the rows of other tasks."""
        train = self.data[task].train
        letters = sum(len(text) for example in train for text in example.texts)
        return OPTIMIZER_LETTERS + letters / len(train)

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

    def without_kept_model(self) -> list[Trial]:
        """Return the chosen trials whose models were not kept, of groups that are over."""
        unfinished = {trial.group for trial in self.missing()}
        over = [trial for trial in self.trials if trial.group not in unfinished]
        if self.keep != "best" or not over:
            return []
        chosen = chosen_trials(self.folder, over)
        return [trial for trial in chosen if not has_model(self.folder / trial.folder)]


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
            f"{sum(map(sweep.rows, missing)):,} rows",
            f"kept: {KEPT[sweep.keep]}{_disk(sweep)}",
            *([f"again, for its model: {t.describe()}" for t in sweep.without_kept_model()]),
            f"results: {sweep.folder}",
        ]
    )


def _disk(sweep: Sweep) -> str:
    """Return how many models of this command will be on the disk, and how large they are."""
    if sweep.keep == "none":
        return ""
    sizes = [trial.model.kept_bytes for trial in sweep.trials]
    if sweep.keep == "all":
        return f"; {_models(sizes)}"
    cells = Counter(trial.group for trial in sweep.trials)
    size_in = {trial.group: trial.model.kept_bytes for trial in sweep.trials}
    others = max(([size_in[cell]] * (cells[cell] - 1) for cell in cells), key=sum)
    more = f", and while trials run {_models(others)} more" if others else ""
    return f"; {_models(list(size_in.values()))}{more}"


def _models(sizes: Sequence[int]) -> str:
    return f"{counted(len(sizes), 'model')} ({amount(sum(sizes), 'bytes')}B)"


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
        Whether a trial failed, even if only when it was run again and its earlier result stays.

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
    # Of an earlier command, or chosen only now that there are more trials. On a GPU the new scores
    # may differ, and another trial be chosen: until it has its model no model is removed.
    tried: set[Trial] = set()
    while lacking := [trial for trial in sweep.without_kept_model() if trial not in tried]:
        tried.update(lacking)
        for trial in lacking:
            print(f"again, as its model was not kept: {trial.describe()}", file=sys.stderr)
        has_failed |= _run(sweep, lacking, num_workers, lambda trial: None)
    if sweep.keep == "best":
        for remark in remove_others(sweep.folder, sweep.trials):
            print(remark, file=sys.stderr)
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
    costs = {task: sweep.row_cost(task) for task in sweep.data}
    progress = SweepProgress(
        {trial: sweep.rows(trial.task.name) for trial in trials},
        {trial: costs[trial.task.name] for trial in trials},
    )
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
    print_table([sweep.folder], step="all", refuse=_warn)
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


def _warn(error: ConfigError) -> None:
    """Go on without a result of another command: its own trials were read before."""
    print(f"warning: it is not in the table: {error}", file=sys.stderr)
