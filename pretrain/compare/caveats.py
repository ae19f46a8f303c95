"""What limits a comparison, a line each, the most severe first."""

from collections.abc import Sequence

from data_prep.files.program import shell_command
from pretrain.compare.launches import MACHINE, differing
from pretrain.compare.plateau import TARGET_MARGIN, is_near_plateau
from pretrain.compare.runs import Arm, Run, have_equal_flops
from pretrain.config.settings import REPLACED_TOKEN_DETECTION
from pretrain.reports.words import counted

# A learning rate below this share of its peak counts as annealed.
ANNEALED = 0.05
# Costs that differ by less than this share are not worth a note: BERT and TUPE differ by less.
SIMILAR_COST = 0.01
MOST_NAMES = 2


def notes_on(
    arms: Sequence[Arm],
    target: float,
    reasons_against_seconds: Sequence[str],
    *,
    entropy: float | None,
) -> list[str]:
    """Return the caveats of a comparison.

    Args:
        arms: the compared arms.
        target: held-out loss in nats.
        reasons_against_seconds: why seconds cannot be compared.
        entropy: unigram entropy of the held-out predictions in nats; None: not known.
    """
    runs = [run for arm in arms for run in arm.runs]
    launches = [launch for arm in arms for launch in arm.launches]
    has_generator = runs[0].settings["objective"] == REPLACED_TOKEN_DETECTION
    near = is_near_plateau(target, entropy)
    shares = [share for run in runs if (share := _final_share(run)) > ANNEALED]
    # Those of the DeepSpeed JSON follow from others.
    changed = [name for launch in launches for name in launch.get("changed_settings", {})]
    changed = sorted({name for name in changed if not name.startswith("ds_config.")})
    found = {
        "seconds not comparable": "; ".join(reasons_against_seconds),
        "diverged": _names([run for run in runs if run.diverged]),
        "not finished": _names([run for run in runs if run.is_unfinished]),
        "different budgets": ", ".join(_different_budgets(arms)),
        "settings changed by a resume": ", ".join(changed),
        "learning rate not annealed": shares
        and f"{counted(len(shares), 'run')} (up to {max(shares):.0%} of the peak)",
        "target near the unigram entropy": near
        and f"give --target at least {TARGET_MARGIN:g} nat below it",
        "unigram entropy": entropy is None and not has_generator and "not recorded",
        "losses of each run's own generator": has_generator
        and f"compare scores too: {shell_command('finetune', 'table', *(r.folder for r in runs))}",
        "one seed": ", ".join(arm.name for arm in arms if len(arm.runs) == 1),
        "different launches": ", ".join(one for one in differing(launches) if one not in MACHINE),
    }
    return [f"{name}: {text}" for name, text in found.items() if text]


def _names(runs: Sequence[Run]) -> str:
    names = [str(run.folder) for run in runs]
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return ", ".join([*names[:MOST_NAMES], *more])


def _final_share(run: Run) -> float:
    """Return the learning rate at the end of a finished run as a share of its peak."""
    rates = run.result
    return rates["final_learning_rate"] / rates["peak_learning_rate"] if rates else 0.0


def _different_budgets(arms: Sequence[Arm]) -> list[str]:
    """Return what the runs had different amounts of."""
    runs = [run for arm in arms for run in arm.runs]
    ended = [run for run in runs if not run.was_stopped]
    hours = {run.settings.get("hours") for run in ended}
    tokens = {run.evaluations[-1]["tokens"] for run in ended}
    costs = [arm.median(lambda run: run.evaluations[-1]["flops"]) or 0.0 for arm in arms]
    found = []
    if len(hours) > 1:
        found.append("hours")
    elif hours == {None} and len(tokens) > 1:
        found.append("tokens, at equal FLOPs" if have_equal_flops(ended) else "tokens")
    elif hours == {None} and max(costs) > (1 + SIMILAR_COST) * min(costs):
        shares = ", ".join(f"{cost / costs[0]:.0%}" for cost in costs) if costs[0] else ""
        found.append(f"FLOPs, at equal tokens ({shares})")
    if any(
        run.settings.get("initial_weights") != runs[0].settings.get("initial_weights")
        for run in runs
    ):
        found.append("initial weights")
    return found
