"""The training loop of one launch: steps, evaluation, checkpoints, rewinds, end."""

import faulthandler
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from data_prep.files.program import shell_command
from data_prep.shards.format import ShardSet
from pretrain.checkpoint.folders import newest_sound_checkpoint
from pretrain.checkpoint.format import Checkpoint
from pretrain.checkpoint.writer import Saver
from pretrain.config.batch import micro_sequences
from pretrain.config.errors import AnomalyError, ConfigError
from pretrain.config.settings import RunSettings
from pretrain.data.batches import HeldOutBatches, MaskedBatch, Place, TrainingBatches, batches_from
from pretrain.distributed.hardware import PeakFlops, peak_memory_bytes
from pretrain.distributed.ranks import DelayedAllReduce, on_first_rank
from pretrain.distributed.signals import Interruption, silence_unread_output
from pretrain.distributed.stopwatch import Stopwatch
from pretrain.engine.engine import Engine
from pretrain.model.cost import parameters_by_group
from pretrain.schedules.step_plan import StepPlan
from pretrain.train.recording.display import StepDisplay
from pretrain.train.recording.progress import Progress
from pretrain.train.recording.run_folder import RunRecord
from pretrain.train.stability.monitor import Rewind, StabilityMonitor

# Below the 10 minutes after which torch ends a job whose ranks wait for another.
HANG_MINUTES = 8


class Trainer:
    """Trains a run from its current step to its end, or until it is interrupted."""

    def __init__(
        self,
        settings: RunSettings,
        engine: Engine,
        shards: ShardSet,
        record: RunRecord,
        progress: Progress,
        rate: PeakFlops,
        saver: Saver,
        interruption: Interruption,
    ) -> None:
        self.interruption = interruption
        self.settings, self.engine, self.record = settings, engine, record
        self.progress, self.ranks, self.rate = progress, engine.ranks, rate
        self.saver = saver
        ranks = engine.ranks
        place = Place(micro_sequences(settings, ranks.world_size), ranks.rank, ranks.world_size)
        self.training_batches = TrainingBatches(shards, settings, place)
        self.held_out_batches = HeldOutBatches(shards, settings, place)
        self.all_reduce = DelayedAllReduce(self.ranks)
        self.clock = Stopwatch()  # of training only
        self.begins_with_weights = bool(settings.initial_weights or settings.model.folder)
        self._stops = False  # whether all ranks know that one was interrupted
        self._armed_at = 0.0
        self.monitor = StabilityMonitor(settings, engine, shards, saver, record.folder)

    def train(self) -> bool:
        """Take the remaining optimizer steps, or stop when a rank is interrupted.

        After an anomaly the run may rewind and take some of them again. Returned is whether the run
        is finished.

        Raises:
            ConfigError: the last checkpoint could not be written.
            AnomalyError: an anomaly ends the run (SystemExit on ranks other than the first).
        """
        self.interruption.begin_training()
        try:
            finished = self._train_to_the_end()
        finally:
            faulthandler.cancel_dump_traceback_later()
        self.interruption.leave()
        silence_unread_output()
        if self.ranks.is_first and finished:
            self._finish()
        elif self.ranks.is_first:
            cause = self.interruption.cause or "another rank was asked to"
            print(
                f"stopped at step {self.progress.step} ({cause}), saved; resume with: "
                f"{self._resume_command()}",
                flush=True,  # a queue that has sent a signal soon kills: W&B may take longer
            )
            self.record.close()
        return finished

    def _train_to_the_end(self) -> bool:
        """Train and save; return whether the run is finished."""
        self.monitor.begin(self.progress.watch)
        trouble = self.settings.trouble
        may_rewind = "rewind" in (trouble.on_not_finite, trouble.on_spike)
        if may_rewind and self.saver.newest is None:
            self._save()
        while True:
            try:
                with StepDisplay(
                    self.settings, self.progress.step, shown=self.ranks.is_first
                ) as display:
                    finished = self._take_steps(display)
                self._save_the_end()
                return finished
            except Rewind:
                self._rewind()

    def _take_steps(self, display: StepDisplay) -> bool:
        """Take optimizer steps; return whether the run is finished.

        The clock covers training only: it stops, after the device has finished, whenever something
        is evaluated or written. With a time budget, the horizon is renewed when it is read.
        """
        progress, horizon = self.progress, self.progress.schedule.horizon
        accumulation, hours = progress.micro_batches_per_step, self.settings.hours
        batches = batches_from(
            self.training_batches,
            progress.step * accumulation,
            None if hours is not None else self.settings.steps * accumulation,
            pin_memory=self.ranks.device == "cuda",
        )
        if progress.step == 0 and self.begins_with_weights:
            self.begins_with_weights = False  # once, also if the run rewinds
            self._evaluate(display)
        self.clock.restart()
        while not horizon.is_end(progress.step):
            plan = progress.next_plan()
            self._expect_a_step()
            if plan.step in self.monitor.left_out:  # its sequences caused an anomaly before
                for _ in plan.micro_batches(batches):
                    pass
                progress.counters.left_out_steps += 1
                progress.counters.step = plan.step
            else:
                self._take_step(plan, batches)
            display.advance()
            asked = {"stop": float(self.interruption.cause is not None)}
            self._handle(self.all_reduce.start({**asked, **self.monitor.history.next_read()}))
            if any(self._due(plan.step)) or horizon.is_due(plan.step) or self._stops:
                self._read_the_clock(display)
                self._do_what_is_due(plan, display)
                self.clock.restart()
            if self._stops:
                break
        return horizon.is_end(progress.step)

    def _take_step(self, plan: StepPlan, batches: Iterator[MaskedBatch]) -> None:
        torch.manual_seed(plan.dropout_seed(self.ranks.rank))
        result = self.engine.train_step(plan.micro_batches(batches), plan.learning_rate)
        self.progress.add_step(plan, result)
        self.monitor.history.add(plan.step, result)

    def _expect_a_step(self) -> None:
        """Let the stacks of all threads be printed if this rank takes no step for long.

        C code that hangs with the interpreter's lock does not prevent it. Ranks print one after the
        other, a second apart.
        """
        now = time.monotonic()
        if now > self._armed_at + 1:  # it starts a thread
            seconds = 60 * HANG_MINUTES + self.ranks.rank
            faulthandler.dump_traceback_later(seconds, file=2)
            self._armed_at = now

    def _handle(self, sums: dict[str, float]) -> None:
        """Handle the previous step's all-reduced numbers (empty at the first call)."""
        self._stops = self._stops or sums.get("stop", 0.0) > 0
        self.monitor.check_step(sums)

    def _settle(self) -> None:
        """Handle the numbers of all steps so far, before a checkpoint or result is written."""
        self._handle(self.all_reduce.finish())
        while self.monitor.history.has_unread:
            self.all_reduce.start(self.monitor.history.next_read(all_steps=True))
            self._handle(self.all_reduce.finish())

    def _rewind(self) -> None:
        """Restore the newest checkpoint, and discard what came after it."""
        self.all_reduce.finish()
        self.engine.synchronize()
        checkpoint = Checkpoint(on_first_rank(self.ranks, self._checkpoint_to_rewind_to))
        self.progress = Progress(self.settings, self.ranks.world_size)
        self.progress.load(checkpoint.content.progress)
        self.engine.restore(checkpoint)
        self.saver.newest = self.saver.attempted = self.progress.step
        on_first_rank(self.ranks, lambda: self.record.discard_after(self.progress.step))
        self.monitor.begin(self.progress.watch)

    def _checkpoint_to_rewind_to(self) -> Path:
        checkpoint = newest_sound_checkpoint(self.record.folder)
        if checkpoint is None:  # the disk was full when the run began
            raise AnomalyError(
                "there is no checkpoint to rewind to; free space for one, and start again without "
                f"these sequences: {self._resume_command()}"
            )
        return checkpoint

    def _save_the_end(self) -> None:
        """Save unless this step is saved already, and wait until everything is on the disk."""
        step = self.progress.step
        self._settle()
        self.saver.wait()
        if self.saver.attempted != step:
            self._save()
            self.saver.wait()
        on_first_rank(self.ranks, self._check_the_end)

    def _check_the_end(self) -> None:
        if self.saver.newest != self.progress.step:
            raise ConfigError(
                f"the last checkpoint, of step {self.progress.step}, could not be written; free "
                f"space for it and resume with: {self._resume_command()}"
            )

    def _resume_command(self) -> str:
        folder, ranks = self.record.folder, self.ranks.world_size
        if ranks > 1:  # under torchrun, deepspeed, or srun: it is not known which
            return f"LAUNCHER -m pretrain train {folder} --resume (on {ranks} ranks, or --elastic)"
        return shell_command("train", folder, "--resume")

    def _read_the_clock(self, display: StepDisplay) -> None:
        """Count the time since the clock started, and fetch the losses of these steps."""
        self.engine.synchronize()
        seconds, waited = self.clock.seconds(), self.clock.waited()
        self.progress.add_seconds(seconds, waited)
        self.progress.fetch_losses(self.engine.mean_over_ranks)
        if self.settings.hours is not None:  # equal seconds on all ranks
            counters, horizon = self.progress.counters, self.progress.schedule.horizon
            seconds = on_first_rank(self.ranks, lambda: counters.training_seconds)
            horizon.renew(counters.step, seconds)
            display.end_at(horizon.segment.end_step)

    def _do_what_is_due(self, plan: StepPlan, display: StepDisplay) -> None:
        step = self.progress.step
        logs, evaluates, saves = self._due(step)  # all three, if the time is up
        if logs and self.progress.counters.steps_since_log:  # none: all were left out
            memory = peak_memory_bytes(self.ranks.device)
            metrics = self.progress.take_metrics(plan, self.rate, memory)
            display.show_metrics(metrics)
            if self.ranks.is_first:
                self.record.log(metrics)
        if evaluates:
            self._evaluate(display)
        if saves:
            self._save()

    def _evaluate(self, display: StepDisplay) -> None:
        batches = (self.held_out_batches[index] for index in range(len(self.held_out_batches)))
        found = self.engine.evaluate(batches)
        evaluation = self.progress.take_evaluation(found)
        if self.ranks.is_first:
            self.record.log_evaluation(evaluation)
            display.show_evaluation(evaluation["step"], found.loss)

    def _due(self, done: int) -> tuple[bool, bool, bool]:
        settings, is_end = self.settings, self.progress.schedule.horizon.is_end(done)
        sections = (settings.evaluation, settings.checkpoint)
        periods = (settings.log_every_steps, *(section.every_steps for section in sections))
        logs, evaluates, saves = (done % n == 0 or is_end for n in periods)
        return logs, evaluates, saves or done in settings.checkpoint.pinned

    def _save(self) -> None:
        self._settle()
        on_first_rank(self.ranks, self.record.check_place)
        lacks_lines = not on_first_rank(self.ranks, self.record.settle)
        self.monitor.check_weights(self.progress.step)
        self.saver.wait()  # one copy of the state on the host is enough
        state, step = self.progress.state(), self.progress.step
        self.saver.save(step, self.engine.snapshot(), state, lacks_lines=lacks_lines)

    def _finish(self) -> None:
        last = self.progress.schedule.plan(self.progress.step)
        settings = self.settings
        groups = parameters_by_group(settings.model, settings.objective, settings.electra)
        self.record.finish(
            {
                **self.progress.result(),
                "final_learning_rate": last.learning_rate,
                "peak_learning_rate": settings.learning_rate.peak,
                "parameters": groups["total"],
            }
        )
        print(f"finished: {self.progress.describe()}; run folder {self.record.folder}")
