"""Settings and commands of earlier versions: refused, ignored in the run.json of a run."""

from typing import Any

# A setting, a section of them, or a command -> what to do instead.
REMOVED = {
    "watchdog": "remove it: --trouble.hang_minutes says when the stacks of a hang are printed",
    "trouble.overflow_streak": "remove it: 20 overflows in a row are a streak",
    "trouble.skip_steps": "remove it: a rewind leaves out the sequences of the step alone",
    "trouble.max_rewinds": "remove it: a run stops after 3 rewinds to one checkpoint",
    "log_project": "remove it: WANDB_PROJECT names the project of W&B",
    "mlflow": "remove it from loggers: docs/RUNNING.md says how MLflow gets the numbers",
    "plan": "use tupelo train RECIPE --dry-run --measure 60",
}


def instead_of_removed(name: str) -> str:
    """Return what to do instead of what is no more; nothing for any other name."""
    return REMOVED.get(name) or REMOVED.get(name.partition(".")[0], "")


def without_removed(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a run.json without settings that are no more."""
    return {name: _kept(name, value) for name, value in tree.items() if name not in REMOVED}


def _kept(section: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: each for name, each in value.items() if f"{section}.{name}" not in REMOVED}
    return [each for each in value if each not in REMOVED] if section == "loggers" else value
