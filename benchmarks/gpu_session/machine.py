"""Print, as a line of JSON, what a session depends on: GPU, code, packages.

The digest is that of the code, not of a commit: a copy without .git has one too, and what is not
committed counts.
"""

import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CODE = ("benchmarks", "data_prep", "ds_configs", "pretrain", "tests", "tupelo")
ENDINGS = {".py", ".toml", ".json", ".cpp", ".h", ".sh"}


def main(*, dry_run: bool) -> None:
    """Print it, or end with the reason why a session cannot start."""
    try:
        from pretrain.train.recording.provenance import environment
    except ModuleNotFoundError as error:
        sys.exit(
            f"error: {sys.executable} has no {error.name}; start without PYTHON=..., then .venv is "
            "made, or add the package to that Python (see pyproject.toml)"
        )
    import torch

    if not dry_run and not torch.cuda.is_available():
        cuda = torch.version.cuda
        sees = "sees no NVIDIA GPU" if cuda else "is a build for CPUs"
        sys.exit(f"error: torch {torch.__version__} {sees}; --dry-run tries all parts on a CPU")
    print(json.dumps(describe(environment(), dry_run=dry_run)))


def describe(environment: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Return what a session depends on."""
    import torch

    gpus = torch.cuda.device_count()
    return {
        "dry_run": dry_run,
        "device": environment["device"],
        "gpus": gpus,
        "memory_gib": round(torch.cuda.get_device_properties(0).total_memory / 2**30)
        if gpus
        else None,
        "commit": environment["commit"],
        "code": code_digest(ROOT),
        "versions": environment["versions"],
        "has_transformers": importlib.util.find_spec("transformers") is not None,
        "has_pytest": importlib.util.find_spec("pytest") is not None,
    }


def code_digest(root: Path) -> str:
    """Return a digest of the code whose results a session reports."""
    digest = hashlib.sha256()
    for package in CODE:
        for file in sorted((root / package).rglob("*")):
            if file.suffix in ENDINGS and file.is_file():
                digest.update(f"{file.relative_to(root)}\0".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    main(dry_run="--dry-run" in sys.argv[1:])
