"""The caveats of a comparison, a sentence each, the most severe first."""

import math
from collections.abc import Sequence
from typing import Any

from data_prep.files.program import shell_command
from pretrain.compare.launches import history_notes, launch_differences
from pretrain.compare.plateau import entropy_notes, target_notes
from pretrain.compare.runs import (
    Arm,
    Run,
    crossing,
    have_equal_flops,
    is_below_from_the_start,
)
from pretrain.config.settings import DEFAULT_OBJECTIVE, REPLACED_TOKEN_DETECTION
from pretrain.reports.words import listed

# A learning rate below this share of its peak counts as annealed.
ANNEALED = 0.05
# Costs that differ by less than this share are not worth a note: BERT and TUPE differ by less.
SIMILAR_COST = 0.01


def notes_on(
    arms: Sequence[Arm],
    target: float,
    reasons_against_seconds: Sequence[str],
    *,
    entropy: float | None,
    is_automatic: bool,
) -> list[str]:
    """Return the caveats of a comparison.

    Args:
        arms: the compared arms.
        target: held-out loss in nats.
        reasons_against_seconds: why seconds cannot be compared.
        entropy: unigram entropy of the held-out predictions in nats; None: not known.
        is_automatic: whether the target was chosen, not given.
    """
    runs = [run for arm in arms for run in arm.runs]
    hours = any(run.settings.get("hours") is not None for run in runs)
    return [
        *(f"time is left out: {reason}" for reason in reasons_against_seconds),
        *_hours_without_time(bool(reasons_against_seconds) and hours),
        *_diverged(runs),
        *_worse_than_guessing(runs),
        *_unfinished(runs),
        *_different_training(runs),
        *_different_cost(arms),
        *_not_annealed(runs),
        *(target_notes(arms, target, entropy) if is_automatic else []),
        *_about_objective(arms),
        *_missed(arms, target),
        *_bounds(runs, target),
        *_single_seeds(arms),
        *launch_differences({arm.name: arm.launches for arm in arms}),
        *(note for run in runs for note in history_notes(str(run.folder), run.launches)),
    ]


def _about_objective(arms: Sequence[Arm]) -> list[str]:
    """Return what to know of the loss: the unigram entropy, or of ELECTRA the generator."""
    runs = [run for arm in arms for run in arm.runs]
    if runs[0].settings["objective"] != REPLACED_TOKEN_DETECTION:
        return entropy_notes(arms)
    command = shell_command("finetune", "table", *(run.folder for run in runs))
    return [
        "the loss of replaced-token detection depends on each run's own generator; compare "
        f"scores too: {command}"
    ]


def _hours_without_time(applies: bool) -> list[str]:
    if not applies:
        return []
    return ["the budget is in hours, and seconds cannot be compared: nor can the losses at the end"]


def _diverged(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.folder} diverged: "
        + (
            f"an anomaly stopped it after its evaluation at step {_last_step(run):,}"
            if run.was_stopped
            else "a held-out loss is infinite or not a number"
        )
        for run in runs
        if run.diverged
    ]


def _worse_than_guessing(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.folder} ends above {guessing:.2f}, the loss of guessing among all words: it diverged"
        for run in runs
        if run.settings["objective"] == DEFAULT_OBJECTIVE
        and math.isfinite(run.final_loss)
        and (words := run.settings["model.vocabulary_size"])  # None: that of an unknown tokenizer
        and run.final_loss > (guessing := math.log(words))
    ]


def _last_step(run: Run) -> int:
    return int(run.evaluations[-1]["step"])


def _unfinished(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.folder} is not finished: its last evaluation, after step "
        f"{_last_step(run):,}, is taken as its end"
        for run in runs
        if run.is_unfinished
    ]


def _different_training(runs: Sequence[Run]) -> list[str]:
    """Return a note for budget, batch size and initial weights where they differ."""
    ended = [run for run in runs if not run.was_stopped]
    budgets = [_budget(run) for run in ended]
    by_flops = len({*budgets}) > 1 and have_equal_flops(ended)
    looked_at: dict[str, list[Any]] = {
        "numbers of tokens, at equal FLOPs" if by_flops else "training budgets": budgets,
        "batch sizes": [run.settings["batch.global_sequences"] for run in runs],
        "initial weights, whose training is not counted": [
            run.settings.get("initial_weights") for run in runs
        ],
    }
    return [
        f"the runs have different {what}"
        for what, values in looked_at.items()
        if any(value != values[0] for value in values)
    ]


def _budget(run: Run) -> str:
    """Return the hours of a run, whose tokens vary with the machine, or its tokens."""
    hours = run.settings.get("hours")
    return f"{run.evaluations[-1]['tokens']} tokens" if hours is None else f"{hours} hours"


def _different_cost(arms: Sequence[Arm]) -> list[str]:
    """Return a note for each arm whose tokens are those of the first one, but not its FLOPs."""
    (tokens, flops), *others = [
        (
            {run.evaluations[-1]["tokens"] for run in arm.runs},
            arm.median(lambda run: run.evaluations[-1]["flops"]),
        )
        for arm in arms
    ]
    return [
        f"{arm.name} took {cost / flops:.0%} of the FLOPs of {arms[0].name} for equally many tokens"
        for arm, (amount, cost) in zip(arms[1:], others, strict=True)
        if amount == tokens and cost and flops and abs(cost / flops - 1) > SIMILAR_COST
    ]


def _not_annealed(runs: Sequence[Run]) -> list[str]:
    by_share: dict[str, list[str]] = {}
    for run in runs:
        rates = run.result
        if rates is None or rates["final_learning_rate"] <= ANNEALED * rates["peak_learning_rate"]:
            continue
        share = rates["final_learning_rate"] / rates["peak_learning_rate"]
        by_share.setdefault(f"{share:.0%}", []).append(str(run.folder))
    return [
        f"the learning rate of {listed(folders)} was not annealed: it ended at {share} of its "
        "peak, and annealing it would lower the loss"
        for share, folders in by_share.items()
    ]


def _missed(arms: Sequence[Arm], target: float) -> list[str]:
    notes = []
    for arm in arms:
        missed = sum(crossing(run, target, "step") is None for run in arm.runs)
        if missed:
            all_of_it = len(arm.runs) == 1
            who = arm.name if all_of_it else f"{missed} of {len(arm.runs)} runs of {arm.name}"
            notes.append(f"{who} never reached {target:.3f}")
    return notes


def _bounds(runs: Sequence[Run], target: float) -> list[str]:
    below = [str(run.folder) for run in runs if is_below_from_the_start(run, target)]
    if not below:
        return []
    return [
        f"the first evaluation of {listed(below)} was already below {target:.3f}: its cost is an "
        "upper bound"
    ]


def _single_seeds(arms: Sequence[Arm]) -> list[str]:
    names = [arm.name for arm in arms if len(arm.runs) == 1]
    if not names:
        return []
    have = "has" if len(names) == 1 else "have"
    return [f"{listed(names)} {have} one seed only: the spread over seeds is unknown"]
