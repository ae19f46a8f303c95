"""Stops or rewinds a training run at an anomaly, or reports it and goes on.

Every rank has a monitor. The ranks sum a few numbers per step without waiting (DelayedAllReduce);
from the sums all of them detect the same anomaly at the same step.

Which steps a rewound run leaves out is not saved: a run that is killed before the checkpoint behind
them meets the anomaly again when it is resumed.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy
from tqdm import tqdm

from data_prep.files.atomic import append_whole, remove_cut_line
from data_prep.files.program import shell_command
from data_prep.shards.format import ShardSet
from pretrain.checkpoint.writer import Saver
from pretrain.config.errors import AnomalyError, ConfigError
from pretrain.config.run_files import DECISIONS
from pretrain.config.settings import RunSettings
from pretrain.data.batches import sequences_of_samples
from pretrain.distributed.ranks import on_first_rank
from pretrain.engine.engine import Engine
from pretrain.schedules.step_plan import finished_before
from pretrain.train.stability.detector import Anomaly, AnomalyDetector, StepNumbers, WatchState
from pretrain.train.stability.history import StepHistory

MOST_REWINDS = 3  # to one checkpoint: then the sequences are not the cause
MOST_NAMED = 16  # sequences in a message


class Rewind(Exception):
    """Ends the loop over the steps on all ranks, to restart it at the newest checkpoint."""


class StabilityMonitor:
    """Detects anomalies and acts on them; all ranks call the same methods at the same step."""

    def __init__(
        self,
        settings: RunSettings,
        engine: Engine,
        shards: ShardSet,
        saver: Saver,
        run_folder: Path,
    ) -> None:
        """Build it.

        Raises:
            ConfigError: updates are to be skipped, and the optimizer cannot (SystemExit on the
                other ranks).
        """
        self.settings, self.engine, self.shards = settings, engine, shards
        self.ranks, self.saver, self.run_folder = engine.ranks, saver, run_folder
        self.history = StepHistory(engine)
        self.detector = AnomalyDetector(settings.trouble, smallest_scale=engine.smallest_loss_scale)
        self.left_out: set[int] = set()  # steps without whose sequences the run trains
        self._rewinds: Counter[int] = Counter()  # by the step of their checkpoint
        on_first_rank(self.ranks, self._refuse_to_skip)

    def begin(self, state: WatchState) -> None:
        """Start with the state of the detector, which the caller saves with checkpoints."""
        self.history = StepHistory(self.engine)  # forgets what a rewind leaves behind
        self.detector.state = state

    def check_step(self, sums: Mapping[str, float]) -> None:
        """Check the sums of `StepHistory.next_read` over the ranks.

        Raises:
            Rewind: the run continues from its newest checkpoint.
            AnomalyError: the run stops (SystemExit on the other ranks).
        """
        if not sums.get("step"):
            return
        ranks = self.ranks.world_size
        numbers = StepNumbers(
            step=round(sums["step"] / ranks),
            loss=sums["loss"] / ranks,
            not_finite_losses=round(sums["bad_losses"]),
            not_finite_gradient=sums["bad_gradients"] > 0,
            overflowed=sums["overflows"] > 0,
            loss_scale=sums["loss_scale"] / ranks,
        )
        anomaly = self.detector.check(numbers)
        if anomaly is not None:
            self._respond(anomaly)

    def check_weights(self, step: int) -> None:
        """Check the weights before they are saved after `step`; raises as `check_step` does."""
        if self.engine.weights.are_finite():
            return
        if step == 0:
            on_first_rank(self.ranks, _refuse_start)
        reason = "weights were not finite after it, although loss and gradient seemed to be"
        self._respond(Anomaly("weights", step, step, reason))

    def _respond(self, anomaly: Anomaly) -> None:
        policy = self.settings.trouble
        action: str = policy.on_spike if anomaly.kind == "spike" else policy.on_not_finite
        if action == "skip" and anomaly.kind != "not finite":
            action = "stop"  # nothing is learned any more
        steps, fix = range(anomaly.first_step, anomaly.step + 1), ""
        if action in ("stop", "rewind"):
            self.saver.wait()  # the newest checkpoint may still be in writing
            newest = self.saver.newest or 0
            steps = range(max(newest + 1, anomaly.first_step), anomaly.step + 1)
            origin = f"the checkpoint of step {newest}" if newest else "the beginning"
            self._rewinds[newest] += action == "rewind"
            fix = f"rewinding to {origin}, to train without these sequences"
            if self._rewinds[newest] > MOST_REWINDS:
                action = "stop"
                fix = (
                    f"leaving sequences out did not help ({MOST_REWINDS} rewinds to {origin}); "
                    "start a new run with a lower --learning_rate.peak"
                )
            elif action == "stop":
                name = "on_spike" if anomaly.kind == "spike" else "on_not_finite"
                words = (self.run_folder, "--resume", f"--trouble.{name}", "rewind")
                fix = f"to train without these sequences: {shell_command('train', *words)}"
        on_first_rank(self.ranks, lambda: self._record(anomaly, action, steps, fix))
        if action == "rewind":
            self.left_out.update(steps)
            raise Rewind

    def _record(self, anomaly: Anomaly, action: str, steps: range, fix: str) -> None:
        """Write a line of decisions.jsonl and a message, which is the error that stops a run."""
        size, split = self.settings.batch.global_sequences, self.shards.manifest.splits["train"]
        first, end = (size * finished_before(step) for step in (steps.start, steps.stop))
        samples, seed = numpy.arange(first, end), self.settings.seed
        sequences = sequences_of_samples(samples, split.rows, seed)[1].tolist()
        line = {"at": time.strftime("%FT%T%z"), "action": action, **vars(anomaly)}
        file = self.run_folder / DECISIONS
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            remove_cut_line(file)
            append_whole(file, json.dumps({**line, "sequences": sequences}) + "\n")
            more = f", all {len(sequences)} in {file}"
        except OSError as error:
            more = f", {len(sequences)} in all; {file} cannot be written: {error.strerror}"
        named = ", ".join(map(str, sequences[:MOST_NAMED]))
        named += more if len(sequences) > MOST_NAMED or "cannot" in more else ""
        of_steps = f" of steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else ""
        message = f"step {anomaly.step}: {anomaly.reason}; sequences{of_steps}: {named}"
        message += f"; {fix}" if fix else ""
        if action == "stop":
            raise AnomalyError(f"{message} (no checkpoint holds it)")
        tqdm.write(f"anomaly: {message}", file=sys.stderr)  # keeps the progress bar intact

    def _refuse_to_skip(self) -> None:
        skips = self.settings.trouble.on_not_finite == "skip"
        if skips and not (self.engine.scales_loss or self.engine.refuses_not_finite_updates):
            raise ConfigError(
                "trouble.on_not_finite=skip: this optimizer applies an update that is not finite; "
                "choose optimizer.kind torch with optimizer.max_gradient_norm, or a ZeRO stage "
                "above 0, or stop or rewind instead"
            )


def _refuse_start() -> NoReturn:
    raise AnomalyError(
        "the initial weights of the run are not finite; choose others "
        "(initial_weights, or an older checkpoint)"
    )
