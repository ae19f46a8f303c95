"""What limits a comparison: a line each, the most severe first.

Steps, tokens and FLOPs do not depend on the machine. Seconds do: they are compared where machines
were equal and did nothing else. Every launch counts: a resumed run can have changed its device.
What an older launch did not record counts as equal.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from data_prep.files.program import shell_command
from pretrain.config.settings import DEFAULT_OBJECTIVE, REPLACED_TOKEN_DETECTION, flat
from pretrain.reports.compare.runs import TARGET_MARGIN, Arm, Run, have_equal_flops, is_near_plateau
from pretrain.reports.words import counted

Launch = dict[str, Any]

# A learning rate below this share of its peak counts as annealed.
ANNEALED = 0.05
# Costs that differ by less than this share are not worth a note: BERT and TUPE differ by less.
SIMILAR_COST = 0.01
MOST_NAMES = 2

# A run that waited for a processor for a larger share of its training ran on a loaded machine. On
# an idle one the share is below 0.01; beside one busy process per core it is about a half.
LOADED = 0.05

# Largest range of the speeds of the runs of an arm, over their median: 0.06 to 0.08 on two virtual
# cores with little else to do, 0.2 and more beside a process that is busy now and then.
UNSTEADY = 0.1

MACHINE = ("device", "ranks", "machines", "threads")  # what changes the speed alone
SHORT_HASH = 12
NESTED = ("versions", "variables", "execution", "micro_batches")  # of a launch
# Name in a table -> what a launch calls it.
_NAMES = {
    "device": "device",
    "ranks": "world_size",
    "machines": "hosts",
    "threads": "threads",
    "precision": "precision",
    "ZeRO stage": "zero_stage",
}
_HASHES = {"training data": "training_data", "manifest": "manifest", "tokenizer": "tokenizer"}


def notes_on(
    arms: Sequence[Arm],
    target: float,
    reasons_against_seconds: Sequence[str],
    *,
    entropy: float | None,
) -> list[str]:
    """Return the caveats of a comparison; `entropy` None: that of its words is not known."""
    runs = [run for arm in arms for run in arm.runs]
    launches = [launch for arm in arms for launch in arm.launches]
    objective = runs[0].settings["objective"]
    intervals = {run.settings["evaluation.every_steps"] for run in runs}
    ends, floor = [run.result for run in runs if run.result], entropy or 0.0
    shares = [end.final_learning_rate / end.peak_learning_rate for end in ends]
    shares = [share for share in shares if share > ANNEALED]
    lower = math.floor(100 * (floor - TARGET_MARGIN)) / 100
    is_met = all(run.evaluations[-1]["loss"] <= lower for run in runs)
    # Those of the DeepSpeed JSON follow from others.
    changed = [name for launch in launches for name in launch.get("changed_settings", {})]
    changed = sorted({name for name in changed if not name.startswith("ds_config.")})
    found = {
        "seconds not comparable": "; ".join(reasons_against_seconds),
        "diverged": _names([run for run in runs if run.diverged]),
        "not finished": _names([run for run in runs if run.is_unfinished]),
        "different budgets": ", ".join(_different_budgets(arms)),
        "settings changed by a resume": ", ".join(changed),
        "rewound, and what was lost is not counted": _names(
            [run for run in runs if run.metrics and run.metrics[-1].get("left_out_steps")]
        ),
        "learning rate not annealed": shares
        and f"{counted(len(shares), 'run')} (up to {max(shares):.0%} of the peak)",
        "target not 1 nat below the unigram entropy": is_near_plateau(target, entropy)
        and (f"tupelo compare RUN ... --target {lower:g}" if is_met else "train longer"),
        "unigram entropy": entropy is None and objective == DEFAULT_OBJECTIVE and "not recorded",
        "losses of each run's own generator": objective == REPLACED_TOKEN_DETECTION
        and f"compare scores too: {shell_command('finetune', 'table', *(r.folder for r in runs))}",
        "different evaluation intervals": len(intervals) > 1
        and "with longer ones the target seems to be reached later",
        "resumed, and each start counts as time": _names([r for r in runs if len(r.launches) > 1]),
        "one seed": ", ".join(arm.name for arm in arms if len(arm.runs) == 1),
        "different launches": ", ".join(one for one in differing(launches) if one not in MACHINE),
    }
    return [f"{name}: {text}" for name, text in found.items() if text]


def _names(runs: Sequence[Run]) -> str:
    names = [str(run.folder) for run in runs]
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return ", ".join([*names[:MOST_NAMES], *more])


def _different_budgets(arms: Sequence[Arm]) -> list[str]:
    """Return what the runs had different amounts of."""
    left = [[run for run in arm.runs if not run.was_stopped] for arm in arms]
    ended = [run for runs in left for run in runs]
    hours = {run.settings.get("hours") for run in ended}
    tokens = {run.evaluations[-1]["tokens"] for run in ended}
    costs = [
        statistics.median(run.evaluations[-1]["flops"] for run in runs) for runs in left if runs
    ]
    found = []
    if len(hours) > 1:
        found.append("hours")
    elif hours == {None} and len(tokens) > 1:
        found.append("tokens, at equal FLOPs" if have_equal_flops(ended) else "tokens")
    elif hours == {None} and all(left) and max(costs) > (1 + SIMILAR_COST) * min(costs):
        shares = ", ".join(f"{cost / costs[0]:.0%}" for cost in costs) if costs[0] else ""
        found.append(f"FLOPs, at equal tokens ({shares}); tupelo sweep --budget flops equals them")
    settings = [run.settings for arm in arms for run in arm.runs]
    if len({(one.get("initial_weights"), one.get("model.folder")) for one in settings}) > 1:
        found.append("initial weights")
    return found


def reasons_against_seconds(arms: Sequence[Arm]) -> list[str]:
    """Return why seconds cannot be compared, a few words each; none if they can."""
    runs = [run for arm in arms for run in arm.runs]
    by_config: dict[str, list[Run]] = {}
    for run in runs:
        by_config.setdefault(run.settings["engine.ds_config"], []).append(run)
    # Where the runs do not ask for a precision, the machine chooses it.
    chosen = (differing(Arm("", same).launches) for same in by_config.values())
    launches = [launch for arm in arms for launch in arm.launches]
    different = [name for name in differing(launches) if name in MACHINE]
    different += ["precision"] if any("precision" in found for found in chosen) else []
    shares = [weighted_by_seconds(run, "processor_wait_share") or 0.0 for run in runs]
    waits = [share for share in shares if share > LOADED]
    speeds = [[run.tokens_per_second for run in arm.runs] for arm in arms]
    ranges = [(max(of_arm) - min(of_arm)) / statistics.median(of_arm) for of_arm in speeds]
    seeds = [spread for spread in ranges if spread > UNSTEADY]
    reasons = [f"different {', '.join(different)}"] if different else []
    if waits:
        reasons.append(f"{counted(len(waits), 'run')} under load ({max(waits):.0%})")
    if seeds:
        reasons.append(f"{counted(len(seeds), 'arm')} of unequal speeds ({max(seeds):.0%})")
    return reasons


def weighted_by_seconds(run: Run, name: str) -> float | None:
    """Return the mean of a field of metrics, weighted by the training seconds of its lines."""
    total = seconds = before = 0.0
    for row in run.metrics:
        if row.get(name) is not None:
            total += row[name] * (row["training_seconds"] - before)
            seconds += row["training_seconds"] - before
        before = row["training_seconds"]
    return total / seconds if seconds > 0 else None


def properties(launch: Launch) -> dict[str, str]:
    """Return what a launch recorded, in words: "versions.torch" -> "2.13.0"."""
    changes = str(launch.get("uncommitted", "")).rpartition("\n")[2].strip()
    nested = {name: value for name, value in launch.items() if name in NESTED}
    return {
        "code": f"{launch['commit']} ({changes})" if changes else launch["commit"],
        **{name: str(launch[key]) for name, key in _NAMES.items() if key in launch},
        **{name: str(launch[key])[:SHORT_HASH] for name, key in _HASHES.items() if key in launch},
        **{name: str(value) for name, value in flat(nested).items()},
    }


def values_of(name: str, launches: Sequence[Launch]) -> list[str]:
    """Return the values of a property; a launch that records variables records those set."""
    found = [
        properties(launch).get(name, "unset")
        for launch in launches
        if name in properties(launch) or ("variables" in launch and name.startswith("variables."))
    ]
    return list(dict.fromkeys(found))


def differing(launches: Sequence[Launch]) -> list[str]:
    """Return the names of the properties that are not equal in all launches."""
    names = dict.fromkeys(name for launch in launches for name in properties(launch))
    different = [name for name in names if len(values_of(name, launches)) > 1]
    # Manifests of other sequences differ too.
    return [name for name in different if name != "manifest" or "training data" not in different]
