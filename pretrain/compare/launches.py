"""What the launches of compared runs recorded of code, machine and data, and where it differs.

Every launch counts: a resumed run can have changed its device. What an older launch did not record
counts as equal.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pretrain.config.settings import flat

Launch = dict[str, Any]

MACHINE = ("device", "ranks", "machines", "threads")  # what changes the speed alone
SHORT_HASH = 12
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


def properties(launch: Launch) -> dict[str, str]:
    """Return what a launch recorded, in words: "versions.torch" -> "2.13.0"."""
    changes = str(launch.get("uncommitted", "")).rpartition("\n")[2].strip()
    nested = {name: value for name, value in launch.items() if name in ("versions", "variables")}
    return {
        "code": f"{launch['commit']} ({changes})" if changes else launch["commit"],
        **{name: str(launch[key]) for name, key in _NAMES.items() if key in launch},
        **{name: str(launch[key])[:SHORT_HASH] for name, key in _HASHES.items() if key in launch},
        **{name: str(value) for name, value in flat(nested).items()},
    }


def differing(launches: Sequence[Launch]) -> list[str]:
    """Return the names of the properties that are not equal in all launches."""
    found = [properties(launch) for launch in launches]
    names = dict.fromkeys(name for one in found for name in one)
    different = [name for name in names if len(_values(name, launches, found)) > 1]
    # Manifests of other sequences differ too.
    return [name for name in different if name != "manifest" or "training data" not in different]


def _values(name: str, launches: Sequence[Launch], found: Sequence[dict[str, str]]) -> set[str]:
    """Return the recorded values; a launch that records variables records those that were set."""
    if name.startswith("variables."):
        return {
            one.get(name, "unset")
            for launch, one in zip(launches, found, strict=True)
            if "variables" in launch
        }
    return {one[name] for one in found if name in one}


def history(launch: Launch) -> dict[str, str]:
    """Return the step that a launch began after, what it changed, and its command."""
    changed = launch.get("changed_settings", {})
    return {
        "after step": f"{launch.get('resumed_from') or 0:,}",
        "changed settings": ", ".join(f"{name} {a} -> {b}" for name, (a, b) in changed.items()),
        "command": _typed(launch["command"]) if launch.get("command") else "",
    }


def _typed(command: Sequence[str]) -> str:
    """Return a command line; `python -m PACKAGE` gives a process the file that it runs."""
    program = Path(command[0])
    is_package = program.name == "__main__.py"
    begin = ["python", "-m", program.parent.name] if is_package else [command[0]]
    return shlex.join([*begin, *command[1:]])
