"""Differences between the launches of compared runs, besides their settings, as sentences.

Every launch counts: a resumed run can have changed its device. What an older launch did not record
counts as equal.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pretrain.reports.words import listed

Launch = dict[str, Any]
Value = Callable[[Launch], str | None]

SHORT_HASH = 12
RESTARTS = "restarts_after"  # the setting that a restart of the schedules changes


def machine_differences(launches: Mapping[str, Sequence[Launch]]) -> list[str]:
    """Return a sentence for every difference that changes the speed alone; see below."""
    looked_at: list[tuple[str, Value]] = [
        ("devices", lambda launch: launch["device"]),
        ("numbers of ranks", _text_of("world_size")),
        ("numbers of machines", _text_of("hosts")),
        ("numbers of threads", _text_of("threads")),
    ]
    return _differences(launches, looked_at)


def launch_differences(launches: Mapping[str, Sequence[Launch]]) -> list[str]:
    """Return a sentence for every other property that is not equal in all launches.

    Args:
        launches: of all runs of each arm, by the name of the arm.
    """
    return _differences(launches, _looked_at(launches))


def _differences(
    launches: Mapping[str, Sequence[Launch]], looked_at: Sequence[tuple[str, Value]]
) -> list[str]:
    sentences = []
    for what, value in looked_at:
        by_arm = {arm: _each(map(value, found)) for arm, found in launches.items()}
        if len({one for values in by_arm.values() for one in values}) > 1:
            sentences.append(f"the runs have different {what}: {_in_words(by_arm)}")
    return sentences


def history_notes(run: str, launches: Sequence[Launch]) -> list[str]:
    """Return how a run was resumed, and what changed between its launches.

    Args:
        run: its name in the sentences.
        launches: of the run, in order.
    """
    resumed = [launch for launch in launches if launch.get("resumed_from") is not None]
    if not resumed:
        return []
    steps = ", ".join(f"{launch['resumed_from']:,}" for launch in resumed)
    notes = [f"{run} was resumed after {'step' if len(resumed) == 1 else 'steps'} {steps}"]
    for before, after in zip(launches, launches[1:], strict=False):
        changes = [
            f"{what} ({before[name]} to {after[name]})"
            for name, what in (
                ("world_size", "its number of ranks"),
                ("zero_stage", "its ZeRO stage"),
                ("precision", "its precision"),
            )
            if name in before and name in after and before[name] != after[name]
        ]
        settings = after.get("changed_settings", {})
        schedules = f", schedules {'restarted' if RESTARTS in settings else 'stretched'}"
        changes += [
            f"{name} ({was} to {now}{schedules if name in ('steps', 'hours') else ''})"
            for name, (was, now) in settings.items()
            # Reported above, or derived from a setting.
            if name not in ("world_size", RESTARTS) and not name.startswith("ds_config.")
        ]
        if changes:
            step = after.get("resumed_from") or 0
            notes.append(f"{run} changed {', '.join(changes)} after step {step:,}")
    return notes


def code_of(launch: Launch) -> str:
    """Return the commit of a launch, and how much was not committed: "2 files changed, ..."."""
    changes = launch.get("uncommitted", "").rpartition("\n")[2].strip()
    return f"{launch['commit']} ({changes})" if changes else str(launch["commit"])


def _looked_at(launches: Mapping[str, Sequence[Launch]]) -> list[tuple[str, Value]]:
    every = [launch for found in launches.values() for launch in found]
    packages = dict.fromkeys(name for launch in every for name in launch["versions"])
    variables = dict.fromkeys(name for launch in every for name in launch.get("variables", {}))
    looked_at: list[tuple[str, Value]] = [
        ("precisions", _text_of("precision")),
        ("commits of the code", code_of),
        ("training data", _short_hash_of("training_data")),
    ]
    if len({launch["training_data"] for launch in every}) == 1:
        # Different rows are reported above.
        looked_at.append(("manifests of equal sequences", _short_hash_of("manifest")))
    looked_at += [(f"versions of the packages, {name}", _version_of(name)) for name in packages]
    looked_at += [(f"values of {name}", _variable_of(name)) for name in variables]
    return looked_at


def _text_of(name: str) -> Value:
    return lambda launch: str(launch[name]) if name in launch else None


def _short_hash_of(name: str) -> Value:
    return lambda launch: launch[name][:SHORT_HASH] if name in launch else None


def _version_of(package: str) -> Value:
    return lambda launch: launch["versions"].get(package)


def _variable_of(name: str) -> Value:
    # A launch that records variables records those that were set.
    return lambda launch: launch["variables"].get(name, "unset") if "variables" in launch else None


def _each(values: Any) -> list[str]:
    return list(dict.fromkeys(value for value in values if value is not None))


def _in_words(by_arm: Mapping[str, list[str]]) -> str:
    """Return "a and b: x; c: y, then z"."""
    arms: dict[str, list[str]] = {}
    for arm, values in by_arm.items():
        arms.setdefault(", then ".join(values) or "not recorded", []).append(arm)
    return "; ".join(f"{listed(names)} {values}" for values, names in arms.items())
