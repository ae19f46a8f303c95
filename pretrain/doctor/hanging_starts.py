"""What makes a start wait for ever without a message: a stale build lock, launcher variables."""

import shlex
import time
from pathlib import Path

from pretrain.doctor.check import CheckContext, CheckResult
from pretrain.reports.words import amount

# Set by a launcher for its children. Left over in a shell they make a lone process wait for others.
SET_BY_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


def build_locks(context: CheckContext) -> CheckResult:
    """Find the lock files of killed builds of DeepSpeed's operations: later starts wait for them.

    torch creates the file, keeps it open while it builds, and removes it; another process that
    finds it waits without a limit.
    """
    folder = _extensions_folder(context)
    locks = [lock for lock in sorted(folder.glob("**/lock")) if lock.is_file()]
    if not locks:
        return CheckResult("ok", f"none in {folder}")
    holders = {lock: _holders(lock, context.root) for lock in locks}
    described = "; ".join(
        f"{lock}, {amount(max(0.0, time.time() - lock.stat().st_mtime), 'training_seconds')} old, "
        + (f"held by process {', '.join(map(str, by))}" if by else "held by no process here")
        for lock, by in holders.items()
    )
    stale = [str(lock) for lock, by in holders.items() if not by]
    if not stale:
        return CheckResult("ok", f"a build is running: {described}")
    fix = f"rm {shlex.join(stale)}   (unless another machine is building in this folder)"
    return CheckResult("problem", f"a start would wait for ever: {described}", fix)


def launcher_variables(context: CheckContext) -> CheckResult:
    """Find the variables of a launcher that are left over in the shell."""
    left = {name: context.environment.get(name) for name in SET_BY_LAUNCHERS}
    left = {name: value for name, value in left.items() if value is not None}
    if not left:
        return CheckResult("ok", "none is set")
    stated = ", ".join(f"{name}={value}" for name, value in left.items())
    return CheckResult(
        "problem",
        f"{stated}: a run that is started without a launcher would wait for other ranks",
        f"unset {' '.join(left)}",
    )


def _extensions_folder(context: CheckContext) -> Path:
    """Return where torch compiles C++ and CUDA operations."""
    environment = context.environment
    caches = environment.get("XDG_CACHE_HOME", f"{environment.get('HOME', '/root')}/.cache")
    return Path(environment.get("TORCH_EXTENSIONS_DIR", f"{caches}/torch_extensions"))


def _holders(lock: Path, root: Path) -> list[int]:
    """Return the processes that have the lock open, or compile in its folder.

    Those of other users and of other machines are not visible.
    """
    processes = (root / "proc").glob("[0-9]*")
    return sorted(int(process.name) for process in processes if _holds(process, lock))


def _holds(process: Path, lock: Path) -> bool:
    lock = lock.resolve()
    try:
        if (process / "cwd").readlink() == lock.parent:
            return True
        return any(handle.readlink() == lock for handle in (process / "fd").iterdir())
    except OSError:  # it has ended since, or is another user's
        return False
