"""Which run reached a held-out loss sooner: in steps, tokens, FLOPs and training seconds.

The first run is the baseline. Runs that differ only in the seed form one arm, reported by medians
and the range; arms of equal seeds are compared with it seed by seed. Nothing is smoothed; between
two evaluations the loss is interpolated linearly.
"""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from data_prep.files.program import shell_command
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import PLATEAU_MARGIN
from pretrain.config.settings import DEFAULT_OBJECTIVE
from pretrain.reports.compare.caveats import differing, notes_on, reasons_against_seconds
from pretrain.reports.compare.pairs import Interval, Pair, median_interval, ratio
from pretrain.reports.compare.runs import (
    Arm,
    Run,
    automatic_target,
    crossing,
    have_equal_flops,
    is_below_from_the_start,
)

# Key in evals.jsonl -> name in tables.
AXES = {"step": "steps", "tokens": "tokens", "flops": "FLOPs", "training_seconds": "time"}


@dataclass(frozen=True)
class Comparison:
    """Arms, baseline first, and the held-out loss at which they are compared."""

    arms: list[Arm]
    target: float  # held-out loss in nats
    reasons_against_seconds: list[str]  # why seconds cannot be compared; none if they can
    notes: list[str]  # caveats, a line each, the most severe first
    # Unigram entropy of the held-out predictions in nats; None: no run recorded it.
    entropy: float | None

    @property
    def plateau_end(self) -> float | None:
        """Return the held-out loss in nats at or below which an arm has left the plateau."""
        return None if self.entropy is None else self.entropy - PLATEAU_MARGIN

    @property
    def axes(self) -> dict[str, str]:
        """Return the axes on which the runs can be compared, with their names."""
        left_out = {"training_seconds"} if self.reasons_against_seconds else set()
        return {axis: name for axis, name in AXES.items() if axis not in left_out}

    @property
    def pairs(self) -> list[Pair]:
        """Return each other arm with the baseline."""
        return [Pair(arm, self.arms[0]) for arm in self.arms[1:]]

    def reached(self, arm: Arm, axis: str) -> float | None:
        """Return the median amount of `axis` at which the arm reached the target."""
        return arm.median(lambda run: crossing(run, self.target, axis))

    def left_plateau(self, arm: Arm, axis: str) -> float | None:
        """Return the median amount of `axis` at which the arm left the plateau.

        None: it never left it, or the entropy is not known.
        """
        end = self.plateau_end
        return None if end is None else arm.median(lambda run: crossing(run, end, axis))

    def is_bound(self, arm: Arm, loss: float | None = None) -> bool:
        """Return whether the place where the arm reached a loss, or the target, is an upper bound.

        It is where a run was below from the start.
        """
        end = self.target if loss is None else loss
        return any(is_below_from_the_start(run, end) for run in arm.runs)

    def share(self, pair: Pair, axis: str) -> float | None:
        """Return what an arm needed of `axis`, as a share of what the other one did: the median.

        None: one of them did not reach the target or never left the plateau, or the runs cannot be
        compared on this axis.
        """
        arms = (pair.arm, pair.against)
        stayed = [arm for arm in arms if self.left_plateau(arm, "step") is None]
        if axis not in self.axes or (self.entropy is not None and stayed):
            return None
        if (paired := self.paired_share(pair, axis)) is not None:
            return paired.median
        ours, others = (self.reached(arm, axis) for arm in arms)
        return ours / others if ours and others else None

    def paired_share(self, pair: Pair, axis: str) -> Interval | None:
        """Return the share by seed, with its interval; None: the seeds are not paired.

        It is None too where an amount is a bound, so that a ratio by seed is not known.
        """
        pairs = pair.by_seed
        if not pairs or self.is_bound(pair.arm) or self.is_bound(pair.against):
            return None
        amounts = [[crossing(run, self.target, axis) for run in runs] for runs in pairs]
        return median_interval([ratio(ours, others) for ours, others in amounts])

    def has_comparable_ends(self, pair: Pair) -> bool:
        """Return whether all runs of a pair had equally many tokens, FLOPs or hours."""
        # A run that diverged has no end to be compared at: its loss there counts as infinite.
        runs = [run for arm in (pair.arm, pair.against) for run in arm.runs if not run.was_stopped]
        if not runs:
            return True
        hours = {run.settings.get("hours") for run in runs}
        if len(hours) > 1:
            return False
        if hours == {None}:
            ends = [(run.evaluations[-1], run.settings["steps"]) for run in runs]
            places = {(end["tokens"], end["step"] / steps) for end, steps in ends}
            return len(places) == 1 or have_equal_flops(runs)
        return not self.reasons_against_seconds and all(run.result is not None for run in runs)


def compare(runs: Sequence[Run], target: str = "auto") -> Comparison:
    """Compare runs with the first one; "auto": see `automatic_target`.

    Raises:
        ConfigError: they have other objectives or held-out data, are fewer than two, one
            of them is named twice, or the target is not a finite number.
    """
    _refuse_incomparable(runs)
    arms = _arms(runs)
    # Frequencies come from the training text: where texts differ, the lowest entropy counts, below
    # which an arm is behind the plateau of any of them.
    of_words = [arm for arm in arms if arm.compared_settings["objective"] == DEFAULT_OBJECTIVE]
    found = {launch.get("frequency_entropy") for arm in of_words for launch in arm.launches}
    entropy = min((one for one in found if one is not None), default=None)
    loss = automatic_target(arms, entropy) if target == "auto" else math.nan
    with suppress(ValueError):  # auto is no number
        loss = float(target)
    if not math.isfinite(loss):
        raise ConfigError(
            f"--target {target!r} is neither a finite number nor auto; give a loss in nats"
        )
    reasons = reasons_against_seconds(arms)
    notes = notes_on(arms, loss, reasons, entropy=entropy)
    return Comparison(arms, loss, reasons, notes, entropy)


def _refuse_incomparable(runs: Sequence[Run]) -> None:
    if len(runs) < 2:
        raise ConfigError("a comparison needs at least two runs; name another one")
    folders = [run.folder.resolve() for run in runs]
    for number, run in enumerate(runs):
        if folders[number] in folders[:number]:
            raise ConfigError(f"{run.folder} is named twice; name each run once")
        launches = [*runs[0].launches, *run.launches]
        is_same = all(launch["held_out"] == launches[0]["held_out"] for launch in launches)
        for what, differs in (
            ("objectives", run.settings["objective"] != runs[0].settings["objective"]),
            ("tokenizers", not is_same and "tokenizer" in differing(launches)),
            ("held-out sequences or masks", not is_same),
        ):
            if differs:
                table = shell_command("finetune", "table", runs[0].folder, run.folder)
                raise ConfigError(
                    f"{runs[0].folder} and {run.folder} have different {what}: their losses per "
                    f"token cannot be compared; fine-tune both and compare scores: {table}"
                )


def _arms(runs: Sequence[Run]) -> list[Arm]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        text = run.launches[0]["training_data"]
        groups.setdefault(json.dumps([text, Arm("", [run]).compared_settings]), []).append(run)
    names = [members[0].settings["name"] for members in groups.values()]
    return [
        # Arms of equal name, such as one recipe with two overrides, are named by their folders.
        Arm(name if names.count(name) == 1 else str(members[0].folder), members)
        for name, members in zip(names, groups.values(), strict=True)
    ]
