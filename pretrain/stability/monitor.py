"""Detects anomalies in a training run, records them, and stops or rewinds the run.

Every rank has a monitor. The ranks sum a few numbers per step without waiting (DelayedAllReduce);
from the sums all of them detect the same anomaly at the same step. Steps are numbered from 1, as in
metrics.jsonl.
"""

import contextlib
import dataclasses
import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from tqdm import tqdm

from data_prep.files.program import shell_command
from data_prep.shards.format import ShardSet
from pretrain.checkpoint.folders import checkpoints_of, step_of
from pretrain.checkpoint.writer import Saver
from pretrain.config.errors import AnomalyError
from pretrain.config.settings import RunSettings
from pretrain.data.batches import TrainingBatches
from pretrain.distributed.ranks import from_all_ranks, on_first_rank
from pretrain.engine.engine import Engine
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.objectives.objective import Objective
from pretrain.profiling.stopwatch import Stopwatch
from pretrain.schedules.step_plan import StepPlan
from pretrain.stability.detector import (
    Anomaly,
    AnomalyDetector,
    Decision,
    StepNumbers,
    WatchState,
    decide,
    excluded_steps,
    pending_rewinds,
    policy_setting,
    wanted_action,
)
from pretrain.stability.history import StepHistory, StepStats, rows_of_step
from pretrain.stability.journal import AnomalyLog
from pretrain.stability.replay import Replay, norms_per_layer, replay_step

NOTHING_TO_READ = {
    name: 0.0 for name in ("step", "loss", "bad_losses", "bad_gradients", "overflows", "loss_scale")
}


class Rewind(Exception):
    """Ends the loop over the steps on all ranks, to restart it at the newest checkpoint."""


class StabilityMonitor:
    """Detects anomalies and acts on them; all ranks call the same methods at the same step."""

    def __init__(
        self,
        settings: RunSettings,
        engine: Engine,
        shards: ShardSet,
        batches: TrainingBatches,
        saver: Saver,
        run_folder: Path,
        clock: Stopwatch,
    ) -> None:
        self.settings, self.engine, self.shards, self.batches = settings, engine, shards, batches
        self.ranks, self.saver, self.run_folder = engine.ranks, saver, run_folder
        self.clock = clock  # of training: stops while this acts
        self.log = AnomalyLog(run_folder)
        self.history = StepHistory(self.ranks.device)
        self.detector = AnomalyDetector(settings.trouble, smallest_scale=engine.smallest_loss_scale)
        self.excluded_steps: set[int] = set()  # whose rows are left out

    def begin(self, step: int, state: WatchState) -> None:
        """Start after `step` steps, and read which steps are excluded.

        Args:
            step: of the checkpoint; 0 without one.
            state: of the detector at that step; the caller saves it with checkpoints.
        """
        self.history.forget()
        self.detector.state = state
        self.excluded_steps = on_first_rank(self.ranks, lambda: self._add_pending_rewinds(step))

    @property
    def may_rewind(self) -> bool:
        """Return whether the run needs a checkpoint before its first step."""
        policy = self.settings.trouble
        return "rewind" in (policy.on_not_finite, policy.on_spike)

    def numbers(self, *, all_steps: bool = False) -> dict[str, float]:
        """Return this rank's numbers of the next unread step, to be summed over the ranks."""
        stats = self.history.next_read(all_steps=all_steps)
        if stats is None:
            return dict(NOTHING_TO_READ)
        bad = sum(not math.isfinite(loss) for loss in stats.losses)
        overflows = self.engine.scales_loss and stats.skipped
        return {
            "step": float(stats.step),
            "loss": 0.0 if bad else sum(stats.losses) / len(stats.losses),
            "bad_losses": float(bad),
            "bad_gradients": float(not overflows and not stats.has_finite_gradient),
            "overflows": float(overflows),
            "loss_scale": stats.loss_scale,
        }

    def check_step(self, sums: Mapping[str, float], done: int) -> None:
        """Check the sums of `numbers` over the ranks, after `done` steps.

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
            with self._off_the_clock():
                self._respond(anomaly, done)

    def check_weights(self, done: int) -> None:
        """Check the weights before they are saved; raises as `check_step` does."""
        if self.engine.weights.are_finite():
            return
        steps = self.history.steps()
        if not steps:
            on_first_rank(self.ranks, self._refuse_start)
        step = steps[-1].step
        reason = "weights were not finite after it, although loss and gradient seemed to be"
        self._respond(Anomaly("not finite", step, step, reason), done)

    def replay_excluded(self, plan: StepPlan) -> None:
        """Replay the step of an anomaly when a rewound run reaches it, with the weights before it.

        Steps that are excluded because they surround an anomaly are not replayed.
        """
        decisions = on_first_rank(self.ranks, self.log.decisions)
        kinds = [one.kind for one in decisions if one.action == "rewind" and one.step == plan.step]
        if not kinds:
            return
        with self._off_the_clock():
            replay = self._replay(plan, self.engine.loss_scale())
            on_first_rank(self.ranks, lambda: self._write_replay(plan.step, kinds[-1], replay))

    @contextlib.contextmanager
    def _off_the_clock(self) -> Iterator[None]:
        """Stop the clock, after the device has finished the steps that it covers."""
        self.engine.synchronize()
        with self.clock.paused():
            yield

    def _replay(self, plan: StepPlan, loss_scale: float) -> dict[str, Any]:
        """Run a step again on a copy of the weights; the run does not change."""
        weights = self.engine.weights.whole()
        found: Replay | None = None
        with torch.random.fork_rng():
            try:
                found, gradients = replay_step(
                    self._copy(weights),
                    self._micro_batches(plan),
                    loss_scale=loss_scale,
                    forward_context=self.engine.forward_context,
                )
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        by_rank = from_all_ranks(found, self.ranks)
        if None in by_rank:
            return {
                "first_not_finite": None,
                "impossible": "the device has no memory left for a second copy of the model",
            }
        for gradient in gradients.values():
            self.engine.average_over_ranks(gradient)
        firsts = [one.first_not_finite() for one in by_rank]
        return {
            "first_not_finite": next((first for first in firsts if first is not None), None),
            "gradient_norms": norms_per_layer(gradients),
            "largest_logit": max(one.largest_logit for one in by_rank),
            "loss_scale": loss_scale,
            "ranks": [dataclasses.asdict(one) for one in by_rank],
        }

    def _copy(self, weights: dict[str, torch.Tensor]) -> Objective:
        # Not compiled: hooks do not run in compiled blocks, whose dropout draws other masks.
        execution = dataclasses.replace(
            self.engine.execution, compiles_blocks=False, recomputes_blocks=False
        )
        model = build_objective(
            self.settings.model, self.settings.objective, self.settings.electra, execution
        )
        model.load_state_dict(weights, assign=True)
        return model.to(self.engine.device)

    def _micro_batches(self, plan: StepPlan) -> list[Any]:
        torch.manual_seed(plan.dropout_seed(self.ranks.rank))
        return [
            (self.engine.on_device(self.batches[number]), self.engine.branch_scales(scales))
            for number, scales in enumerate(plan.branch_scales, plan.first_micro_batch)
        ]

    def _respond(self, anomaly: Anomaly, done: int) -> None:
        """Replay the step, then record, rewind or stop."""
        self.saver.wait()  # the newest checkpoint may still be in writing
        if anomaly.kind != "spike":
            # The run does not continue from here; the remaining steps belong to the record.
            while self.history.next_read(all_steps=True) is not None:
                pass
        by_rank: list[list[StepStats]] = from_all_ranks(self.history.steps(), self.ranks)
        stats = {one.step: one for one in by_rank[0]}
        at = stats[anomaly.step]
        # The recorded loss scale of a step is that after it.
        scale = stats.get(anomaly.step - 1, at).loss_scale
        replay = self._replay(self.history.plan(anomaly.step), scale)
        replay["weights"] = self._which_weights(anomaly, list(stats.values()), done)
        again = [one["losses"] for one in replay.get("ranks", [])]
        before = [step.losses for one in by_rank for step in one if step.step == anomaly.step]
        replay["has_the_losses_of_the_step"] = repr(again) == repr(before)  # nan != nan
        decision = on_first_rank(self.ranks, lambda: self._decide(anomaly, by_rank, replay))
        if decision.action == "rewind":
            raise Rewind
        if decision.action == "stop":
            on_first_rank(self.ranks, lambda: self._stop(anomaly, replay))

    def _which_weights(self, anomaly: Anomaly, stats: list[StepStats], done: int) -> str:
        """Return which weights the replay used: those before the step, or later ones."""
        refuses = self.engine.refuses_not_finite_updates
        updated = [
            one.step
            for one in stats
            if one.step >= anomaly.step
            and not one.skipped
            and not (refuses and not one.has_finite_gradient)
        ]
        if not updated:
            return f"those before step {anomaly.step}: no update was made since"
        return f"those after step {done}: updates were made in {len(updated)} steps since"

    def _decide(
        self, anomaly: Anomaly, by_rank: list[list[StepStats]], replay: dict[str, Any]
    ) -> Decision:
        """Decide what to do, and record it."""
        checkpoint = next(reversed(checkpoints_of(self.run_folder)), None)
        newest = 0 if checkpoint is None else step_of(checkpoint)
        decision, why = decide(anomaly, self.settings.trouble, self.log.decisions(), newest)
        rows = [rows_of_step(step, self.shards, self.settings) for step in decision.steps]
        content = {
            "at": time.strftime("%FT%T%z"),
            **vars(anomaly),
            "action": decision.action,
            "why": why,
            "inspection": replay,
            "rows": rows,
            "steps": [[vars(one) for one in stats] for stats in by_rank],
        }
        observed = f"{anomaly.reason}{_first_not_finite(replay)}"
        try:
            # The decision last: a kill in between loses nothing.
            recording = self.log.write_recording(anomaly.step, content)
            self.log.add_decision(decision, why)
        except OSError as error:
            self._report_unrecorded(decision, observed, error)
            return decision
        if decision.action != "stop":  # the error that ends the run says the same
            _report(f"step {anomaly.step}: {observed}; recorded in {recording}")
        if decision.action == "rewind":
            _report(_rewind_message(decision, rows))
        return decision

    def _report_unrecorded(self, decision: Decision, observed: str, error: OSError) -> None:
        """Report it where the run goes on, as after a spike; raise it where it stops or rewinds."""
        problem = f"{observed}; {self._not_recorded(error)}"
        if decision.action != "record":
            again = shell_command("train", self.run_folder, "--resume")
            raise AnomalyError(
                f"{decision.kind} at step {decision.step}: {problem}; no checkpoint holds it; free "
                f"space, and continue from the newest one: {again}"
            )
        _report(f"step {decision.step}: {problem}")

    def _not_recorded(self, error: OSError) -> str:
        return f"it cannot be recorded in {self.log.folder} ({error.strerror or error})"

    def _stop(self, anomaly: Anomaly, replay: dict[str, Any]) -> NoReturn:
        policy = self.settings.trouble
        if wanted_action(anomaly.kind, policy) == "rewind":
            last = self.log.decisions()[-1]
            fix = (
                f"leaving rows out did not help ({policy.max_rewinds} rewinds to step "
                f"{last.checkpoint_step}); try a lower learning rate, or an older checkpoint"
            )
        else:
            option = f"--trouble.{policy_setting(anomaly.kind)}"
            again = shell_command("train", self.run_folder, "--resume", option, "rewind")
            fix = f"continue without its rows: {again}"
        raise AnomalyError(
            f"{anomaly.kind} at step {anomaly.step}: {anomaly.reason}{_first_not_finite(replay)}; "
            f"no checkpoint holds it; see {self.log.folder}; {fix}"
        )

    def _refuse_start(self) -> NoReturn:
        raise AnomalyError(
            "the initial weights of the run are not finite; choose others "
            "(initial_weights, or an older checkpoint)"
        )

    def _add_pending_rewinds(self, step: int) -> set[int]:
        """Turn earlier stops into rewinds, if the policy is to rewind now."""
        for decision in pending_rewinds(self.log.decisions(), self.settings.trouble, step):
            self.log.add_decision(decision, "resumed with a policy to rewind")
            rows = [rows_of_step(one, self.shards, self.settings) for one in decision.steps]
            _report(_rewind_message(decision, rows))
        return excluded_steps(self.log.decisions())

    def _write_replay(self, step: int, kind: str, replay: dict[str, Any]) -> None:
        replay["weights"] = f"those before step {step}, after a rewind"
        content = {"kind": kind, "step": step, "is_replay": True, "inspection": replay}
        try:
            recorded = f"recorded in {self.log.write_recording(step, content)}"
        except OSError as error:
            recorded = self._not_recorded(error)
        first = _first_not_finite(replay) or "; everything in it was finite this time"
        _report(f"step {step}: its rows are left out{first}; {recorded}")


def _first_not_finite(replay: dict[str, Any]) -> str:
    first = replay["first_not_finite"]
    return f"; not finite at first: {first}" if first else ""


def _rewind_message(decision: Decision, rows: list[dict[str, Any]]) -> str:
    numbers = [number for part in rows for number in part["row"]]
    few = ", ".join(map(str, numbers[:5]))
    steps = f"step {decision.step}"
    if decision.first_step != decision.step:
        steps = f"steps {decision.first_step} to {decision.step}"
    origin = f"the checkpoint of step {decision.checkpoint_step}"
    return (
        f"rewinding to {origin if decision.checkpoint_step else 'the beginning'}; the "
        f"{len(numbers)} rows of {steps} will be left out (rows {few}, ...)"
    )


def _report(sentence: str) -> None:
    tqdm.write(f"anomaly: {sentence}", file=sys.stderr)  # keeps the progress bar intact
