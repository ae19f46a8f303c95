"""Settings of earlier versions: refused in recipes and options, ignored in run.json."""

from typing import Any

# A setting or a section of them -> what to do instead.
REMOVED = {
    "watchdog": "remove it: --trouble.hang_minutes says when the stacks of a hang are printed",
    "trouble.overflow_streak": "remove it: 20 overflows in a row are a streak",
    "trouble.skip_steps": "remove it: a rewind leaves out the sequences of the step alone",
    "trouble.max_rewinds": "remove it: a run stops after 3 rewinds to one checkpoint",
}


def instead_of_removed(name: str) -> str:
    """Return what to do instead of a setting that is no more; nothing for any other name."""
    return REMOVED.get(name) or REMOVED.get(name.partition(".")[0], "")


def without_removed(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a run.json without settings that are no more."""
    return {
        name: {inner: each for inner, each in value.items() if f"{name}.{inner}" not in REMOVED}
        if isinstance(value, dict)
        else value
        for name, value in tree.items()
        if name not in REMOVED
    }
