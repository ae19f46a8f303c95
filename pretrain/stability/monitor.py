"""Watches a training run for numerical trouble, writes it down, and does what the settings say.

Every rank has one. What they add up is a few numbers of a step, once per step and without waiting
(agreement.py); from the sums all of them find the same trouble at the same step. Steps are counted
as in metrics.jsonl: step n is the n-th.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from tqdm import tqdm

from data_prep.shards.format import ShardSet
from pretrain.checkpoint.folders import checkpoints_of, step_of
from pretrain.checkpoint.writer import Saver
from pretrain.config.errors import AnomalyError
from pretrain.config.settings import RunSettings
from pretrain.data.batches import TrainingBatches
from pretrain.distributed.ranks import from_all_ranks, on_first_rank
from pretrain.engine.engine import Engine
from pretrain.model.objectives import Objective, objective_named
from pretrain.schedules.step_plan import StepPlan
from pretrain.stability.detector import (
    Anomaly,
    AnomalyDetector,
    Decision,
    StepNumbers,
    WatchState,
    decide,
    pending_rewinds,
    skipped_steps,
)
from pretrain.stability.history import StepHistory, StepStats, rows_of_step
from pretrain.stability.journal import AnomalyLog
from pretrain.stability.replay import Inspection, norms_per_layer, replay_step

NOTHING_TO_READ = {
    name: 0.0 for name in ("step", "loss", "bad_losses", "bad_gradients", "overflows", "loss_scale")
}


class GoBack(Exception):
    """Ends the loop over the steps on all ranks, to begin it anew at the newest checkpoint."""


class StabilityMonitor:
    """The eyes and the memory of a run; every rank calls the same methods at the same step."""

    def __init__(
        self,
        settings: RunSettings,
        engine: Engine,
        shards: ShardSet,
        batches: TrainingBatches,
        saver: Saver,
        run_folder: Path,
    ) -> None:
        self.settings, self.engine, self.shards, self.batches = settings, engine, shards, batches
        self.ranks, self.saver, self.run_folder = engine.ranks, saver, run_folder
        self.folder = AnomalyLog(run_folder)
        self.recorder = StepHistory(self.ranks.device)
        self.watch = AnomalyDetector(settings.trouble, scale_floor=engine.smallest_loss_scale)
        self.left_out: set[int] = set()  # steps

    def begin(self, step: int, state: WatchState) -> None:
        """Start, or start again, after `step` steps, and read which rows are left out.

        Args:
            step: of the checkpoint; 0 without one.
            state: of the watch at that step; shared with whoever saves it.
        """
        self.recorder.forget()
        self.watch.state = state
        self.left_out = on_first_rank(self.ranks, lambda: self._take_up(step))

    @property
    def may_go_back(self) -> bool:
        """Return whether the run needs a checkpoint to go back to."""
        trouble = self.settings.trouble
        return "rewind" in (trouble.on_not_finite, trouble.on_spike)

    def numbers(self, *, all_steps: bool = False) -> dict[str, float]:
        """Return this rank's numbers of the next step to be looked at, for an exchange."""
        flown = self.recorder.next_read(all_steps=all_steps)
        if flown is None:
            return dict(NOTHING_TO_READ)
        bad = sum(not math.isfinite(loss) for loss in flown.losses)
        overflows = self.engine.scales_loss and flown.skipped
        return {
            "step": float(flown.step),
            "loss": 0.0 if bad else sum(flown.losses) / len(flown.losses),
            "bad_losses": float(bad),
            "bad_gradients": float(not overflows and not flown.has_finite_gradient),
            "overflows": float(overflows),
            "loss_scale": flown.loss_scale,
        }

    def look(self, sums: Mapping[str, float], done: int) -> None:
        """Look at the sums of an exchange, when `done` steps were taken.

        Raises:
            GoBack: the run shall go on from its newest checkpoint.
            AnomalyError: it shall stop (SystemExit on the other ranks).
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
        trouble = self.watch.look(numbers)
        if trouble is not None:
            self._respond(trouble, done)

    def check_weights(self, done: int) -> None:
        """Make sure that no weights are saved that are not finite; raises as `look` does."""
        if self.engine.has_finite_weights():
            return
        steps = self.recorder.steps()
        if not steps:
            on_first_rank(self.ranks, self._refuse_start)
        step = steps[-1].step
        reason = "weights were not finite after it, although loss and gradient seemed to be"
        self._respond(Anomaly("not finite", step, step, reason), done)

    def replay(self, plan: StepPlan) -> None:
        """Look at the step of a trouble, when a run that went back comes to it and leaves it out.

        The weights are the very ones that it had before it. Steps that are left out because they
        surround it are not looked at.
        """
        decisions = on_first_rank(self.ranks, self.folder.decisions)
        kinds = [one.kind for one in decisions if one.action == "rewind" and one.step == plan.step]
        if kinds:
            inspection = self.inspect(plan, self.engine.loss_scale())
            on_first_rank(self.ranks, lambda: self._write_replay(plan.step, kinds[-1], inspection))

    def inspect(self, plan: StepPlan, loss_scale: float) -> dict[str, Any]:
        """Run a step again on a copy of the weights, and say what was seen; nothing changes."""
        weights = self.engine.whole_weights()
        found: Inspection | None = None
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
                "impossible": "a second copy of the model needs more "
                "memory than the device has left",
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
        # Not compiled: hooks do not fire in compiled blocks. Its dropout then draws other masks.
        execution = dataclasses.replace(
            self.engine.execution, compiles_blocks=False, recomputes_blocks=False
        )
        model = objective_named(self.settings.objective)(self.settings.model, execution)
        model.load_state_dict(weights, assign=True)
        return model.to(self.engine.device)

    def _micro_batches(self, plan: StepPlan) -> list[Any]:
        torch.manual_seed(plan.dropout_seed(self.ranks.rank))
        return [
            (self.engine.on_device(self.batches[number]), self.engine.branch_scales(scales))
            for number, scales in enumerate(plan.branch_scales, plan.first_micro_batch)
        ]

    def _respond(self, trouble: Anomaly, done: int) -> None:
        self.saver.wait()  # the checkpoint to go back to may be on its way
        if trouble.kind != "spike":
            # The run does not go on from here: nobody else will read them.
            while self.recorder.next_read(all_steps=True) is not None:
                pass
        by_rank: list[list[StepStats]] = from_all_ranks(self.recorder.steps(), self.ranks)
        flown = {one.step: one for one in by_rank[0]}
        at = flown[trouble.step]
        # What is kept of a step is the loss scale that it left behind.
        scale = flown.get(trouble.step - 1, at).loss_scale
        inspection = self.inspect(self.recorder.plan(trouble.step), scale)
        inspection["weights"] = self._which_weights(trouble, list(flown.values()), done)
        again = [one["losses"] for one in inspection.get("ranks", [])]
        before = [step.losses for one in by_rank for step in one if step.step == trouble.step]
        inspection["has_the_losses_of_the_step"] = repr(again) == repr(before)  # nan != nan

        def act() -> Decision:
            return self._decide(trouble, by_rank, inspection)

        decision = on_first_rank(self.ranks, act)
        if decision.action == "rewind":
            raise GoBack
        if decision.action == "stop":
            on_first_rank(self.ranks, lambda: self._stop(trouble, inspection))

    def _which_weights(self, trouble: Anomaly, flown: list[StepStats], done: int) -> str:
        """Return which weights the inspection saw: those before the step, or later ones."""
        refuses = self.engine.refuses_not_finite_updates
        moved = [
            one.step
            for one in flown
            if one.step >= trouble.step
            and not one.skipped
            and not (refuses and not one.has_finite_gradient)
        ]
        if not moved:
            return f"those before step {trouble.step}: no update was made since"
        return f"those after step {done}: updates were made in {len(moved)} steps since"

    def _decide(
        self, trouble: Anomaly, by_rank: list[list[StepStats]], inspection: dict[str, Any]
    ) -> Decision:
        """Write the recording, then the decision: the order in which nothing can be lost."""
        checkpoint = next(reversed(checkpoints_of(self.run_folder)), None)
        newest = 0 if checkpoint is None else step_of(checkpoint)
        decision, why = decide(trouble, self.settings.trouble, self.folder.decisions(), newest)
        rows = [rows_of_step(step, self.shards, self.settings) for step in decision.steps]
        recording = self.folder.write_recording(
            trouble.step,
            {
                "at": time.strftime("%FT%T%z"),
                **vars(trouble),
                "action": decision.action,
                "why": why,
                "inspection": inspection,
                "rows": rows,
                "steps": [[vars(one) for one in flown] for flown in by_rank],
            },
        )
        self.folder.add_decision(decision, why)
        if decision.action != "stop":  # the error that ends the run says the same
            first = inspection["first_not_finite"]
            seen = f"; not finite at first: {first}" if first else ""
            _tell(f"step {trouble.step}: {trouble.reason}{seen}; recorded in {recording}")
        if decision.action == "rewind":
            _tell(_going_back(decision, rows))
        return decision

    def _stop(self, trouble: Anomaly, inspection: dict[str, Any]) -> NoReturn:
        first = inspection["first_not_finite"]
        last = self.folder.decisions()[-1]
        setting = "on_spike" if trouble.kind == "spike" else "on_not_finite"
        advice = (
            "go on without its rows: python -m pretrain train "
            f"{self.run_folder} --resume --trouble.{setting} rewind"
        )
        if self._wants_to_rewind(trouble):
            advice = (
                f"leaving rows out did not help ({self.settings.trouble.max_rewinds} rewinds to "
                f"step {last.checkpoint_step}); try a lower learning rate, or an older checkpoint"
            )
        raise AnomalyError(
            f"{trouble.kind} at step {trouble.step}: {trouble.reason}"
            + (f"; not finite at first: {first}" if first else "")
            + f"; no checkpoint holds it; see {self.folder.folder}; {advice}"
        )

    def _refuse_start(self) -> NoReturn:
        raise AnomalyError(
            "the weights that the run begins with are not finite; choose others "
            "(initial_weights, or an older checkpoint)"
        )

    def _wants_to_rewind(self, trouble: Anomaly) -> bool:
        wanted = self.settings.trouble
        choice = wanted.on_spike if trouble.kind == "spike" else wanted.on_not_finite
        return choice == "rewind"

    def _take_up(self, step: int) -> set[int]:
        """Turn decisions to stop into rewinds, if that is what is wanted now."""
        decisions = self.folder.decisions()
        for owed in pending_rewinds(decisions, self.settings.trouble, step):
            self.folder.add_decision(owed, "resumed with a policy to rewind")
            rows = [rows_of_step(one, self.shards, self.settings) for one in owed.steps]
            _tell(_going_back(owed, rows))
        return skipped_steps(self.folder.decisions())

    def _write_replay(self, step: int, kind: str, inspection: dict[str, Any]) -> None:
        first = inspection["first_not_finite"]
        inspection["weights"] = f"those before step {step}, come to again"
        content = {"kind": kind, "step": step, "is_replay": True, "inspection": inspection}
        file = self.folder.write_recording(step, content)
        cause = (
            f"not finite at first: {first}" if first else "everything in it was finite this time"
        )
        _tell(f"step {step}: its rows are left out; {cause}; recorded in {file}")


def _going_back(decision: Decision, rows: list[dict[str, Any]]) -> str:
    numbers = [number for part in rows for number in part["row"]]
    few = ", ".join(map(str, numbers[:5]))
    steps = f"step {decision.step}"
    if decision.first_step != decision.step:
        steps = f"steps {decision.first_step} to {decision.step}"
    origin = f"the checkpoint of step {decision.checkpoint_step}"
    return (
        f"going back to {origin if decision.checkpoint_step else 'the beginning'}; the "
        f"{len(numbers)} rows of {steps} will be left out (rows {few}, ...); the schedules go on"
    )


def _tell(sentence: str) -> None:
    tqdm.write(f"trouble: {sentence}", file=sys.stderr)  # not into the bar
