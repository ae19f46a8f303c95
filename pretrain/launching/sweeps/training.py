"""Trains the runs of a sweep: one after the other, or as many at once as there are launch plans."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pretrain.checkpoint.starting import finished
from pretrain.compare.run_files import was_stopped_by_anomaly
from pretrain.config.errors import ConfigError
from pretrain.launching.child import Child, Children, last_line
from pretrain.launching.launch_plan import LaunchPlan
from pretrain.launching.sweeps.arms import SweepRun
from pretrain.launching.sweeps.description import describe_time
from pretrain.launching.sweeps.folder import SweepFolder
from pretrain.launching.sweeps.records import Records
from pretrain.launching.sweeps.sweep import Sweep
from pretrain.launching.sweeps.tuning import tune
from pretrain.reports.terminal import paragraph, terminal_width
from pretrain.reports.words import counted


def train_all(
    sweep: Sweep, folder: SweepFolder, plans: list[LaunchPlan], records: Records | None
) -> list[str]:
    """Tune where the spec asks for it, then train the runs; return notes for the report.

    Args:
        sweep: what is trained.
        folder: of the sweep.
        plans: of the starts of runs, as many as are trained together.
        records: of what is finished; None: none are kept.

    Raises:
        SystemExit: a run failed, or a signal asked to stop.
        ConfigError: a run ended without a result, or every trial of an arm diverged.
    """

    def train(runs: list[SweepRun]) -> None:
        def keep() -> None:
            if records is not None:
                records.keep(runs)

        keep()
        if not sweep.is_smoke_test and not all(run.is_finished for run in runs):
            print(describe_time(runs, plans[0], at_once=len(plans)), "\n", flush=True)
        SweepTraining(runs, plans, keep).train()

    arms, notes = None, []
    if sweep.spec.tuning is not None:
        tuned = tune(sweep, sweep.spec.tuning, folder.path, train)
        arms, notes = [one.arm for one in tuned], [n for one in tuned for n in one.describe()]
        print("\n".join(paragraph(note, terminal_width(), rest="  ") for note in notes) + "\n")
    # By seed: a sweep that is stopped early has the same seeds of all arms.
    by_arm = sweep.runs(folder.path, arms)
    train([run for seed in zip(*by_arm, strict=True) for run in seed])
    return notes


class SweepTraining:
    """The training of the runs of a sweep that are not finished.

    One plan: a run writes to this terminal. Several: each writes to a file of its own, and here is
    a line for each event. After a failure no other run is started, and those that train go on.
    """

    def __init__(
        self,
        runs: Sequence[SweepRun],
        plans: Sequence[LaunchPlan],
        on_finished: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            runs: in the order in which they are started.
            plans: how a run is started; a run holds one until it ends.
            on_finished: called when a run has finished.
        """
        self._numbers = {run.folder: number for number, run in enumerate(runs, 1)}
        self._waiting = list(runs)
        self._free, self._at_once = list(plans), len(plans)
        self._on_finished = on_finished
        self._started: dict[Child, tuple[SweepRun, LaunchPlan]] = {}
        self._error: SystemExit | ConfigError | None = None  # the first

    def train(self) -> None:
        """Train them, each in new processes.

        Raises:
            SystemExit: a run failed, or a signal asked to stop.
            ConfigError: a run ended without a result, or a finished one has other settings.
        """
        for run in self._waiting:
            if run.is_finished:
                run.refuse_other_settings()
        with Children() as children:
            while True:
                while self._may_start(children):
                    self._start_next(children)
                if not children.running:
                    break
                child, status = children.next_ended()
                run, _ = self._started[child]
                try:
                    self._end(child, status, children)
                except ConfigError as error:  # of its result or its record
                    self._fail(run, str(error), error)
        if self._error is not None:
            raise self._error

    def _may_start(self, children: Children) -> bool:
        if children.stopped and self._error is None and self._waiting:
            self._error = SystemExit(0)
        return bool(self._waiting and self._free and self._error is None)

    def _start_next(self, children: Children) -> None:
        run = self._waiting[0]
        if run.is_finished:
            self._waiting.pop(0)
            self._say(run, "finished before")
            return
        begins = run.has_begun
        self._say(run, f"{'resuming' if begins else 'starting'} in {run.folder}")
        again = ["--resume"] if begins else []
        words = ["train", run.recipe, *run.words, "--run-folder", str(run.folder), *again]
        plan = self._free.pop(0)
        child = plan.child(words, output_file(run) if self._at_once > 1 else None)
        self._started[child] = run, plan
        self._waiting.pop(0)
        try:
            run.folder.parent.mkdir(parents=True, exist_ok=True)  # of its output, and of trials
            children.start(child)
        except OSError as error:  # a full disk, or no memory for another process
            del self._started[child]
            how = f"not started: {error}"
            self._fail(run, how, ConfigError(f"{run.folder.name} {how}"))

    def _end(self, child: Child, status: int, children: Children) -> None:
        run, plan = self._started.pop(child)
        self._free.append(plan)
        result = finished(run.folder) if self._at_once > 1 else None
        if children.stopped:
            self._stop(run, status)
        elif status and was_stopped_by_anomaly(run.folder):
            self._on_finished()
            self._say(run, "diverged, and the others go on")
        elif status:
            self._fail(run, f"failed with status {status}; {_reason(run)}", SystemExit(status))
        elif not run.is_finished:
            # The deepspeed launcher reports success when its workers are killed by a signal.
            self._fail(
                run,
                f"ended without a result; {_reason(run)}",
                ConfigError(
                    f"{run.folder.name} ended without a result; see its last messages "
                    + (f"in {output_file(run)}" if self._at_once > 1 else "above")
                ),
            )
        else:
            self._on_finished()
            if result is not None:
                self._say(run, f"finished, held-out loss {result.held_out_loss:.4f}")

    def _stop(self, run: SweepRun, status: int) -> None:
        saved = isinstance(self._error, SystemExit) and not self._error.code
        if self._error is None or saved:
            self._error = SystemExit(status)
        if self._at_once > 1:
            self._say(run, f"asked to stop; {last_line(output_file(run))}")

    def _fail(self, run: SweepRun, how: str, error: SystemExit | ConfigError) -> None:
        self._error = self._error or error
        if self._at_once > 1:
            self._say(run, how)
        if self._started:
            others = counted(len(self._started), "other run")
            print(f"no more runs are started; waiting for {others}", file=sys.stderr)

    def _say(self, run: SweepRun, text: str) -> None:
        number, count = self._numbers[run.folder], len(self._numbers)
        print(f"[{number}/{count}] {run.folder.name}: {text}", flush=True)


def output_file(run: SweepRun) -> Path:
    """Return the file with the output of a run that is trained beside others."""
    return run.folder.with_name(f"{run.folder.name}.log")


def _reason(run: SweepRun) -> str:
    return f"output in {output_file(run)}: {last_line(output_file(run))}"
