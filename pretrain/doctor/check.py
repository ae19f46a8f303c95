"""What a check is given, and what it returns."""

import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pretrain.config.settings import RunSettings
from pretrain.distributed.gpus import DriverAnswer

StatVfs = Callable[[Path], os.statvfs_result]
Status = Literal["ok", "warning", "problem"]


class CheckResult(NamedTuple):
    """The result of a check."""

    status: Status  # problem: a run will fail or be wrong; warning: it may, or will be slow
    message: str
    fix: str = ""  # what to do, where possible a command


@dataclass(frozen=True)
class Gpu:
    """A GPU that torch sees."""

    name: str
    memory_bytes: int
    free_bytes: int
    error: str = ""  # why it cannot be used


@dataclass(frozen=True)
class Accelerators:
    """The GPUs of the machine, as torch and as the driver report them."""

    gpus: tuple[Gpu, ...] = ()
    torch_cuda: str | None = None  # the CUDA version that torch is built for
    driver: DriverAnswer = DriverAnswer()

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """Return where a run would be executed."""
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True)
class CheckContext:
    """Everything that the checks look at; a test passes another machine."""

    environment: Mapping[str, str]
    run_folder: Path
    ranks: int = 1
    accelerators: Accelerators = Accelerators()
    root: Path = Path("/")  # of the file system with /proc, /sys and /dev
    recipe: str | None = None
    settings: RunSettings | None = None  # None: no recipe was named
    ds_config: Mapping[str, Any] | None = None  # as DeepSpeed gets it


class Check(NamedTuple):
    """A check and its title."""

    title: str
    run: Callable[[CheckContext], CheckResult]


def run_check(check: Check, context: CheckContext) -> CheckResult:
    """Return the result of a check; a check that fails itself is a problem, with its error."""
    try:
        return check.run(context)
    # Any error, on purpose: a machine that is broken in an unforeseen way must not hide the results
    # of the other checks, and no training depends on what is caught here.
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return CheckResult(
            "problem",
            f"the check itself failed: {type(error).__name__}: {error}",
            f"see {Path(place.filename).name}, line {place.lineno}; this may be a bug of Tupelo",
        )


def problem_of(error: ValueError) -> CheckResult:
    """Return the message of an error, which ends with what to do after a semicolon."""
    message, _, fix = str(error).partition("; ")
    return CheckResult("problem", message, fix)


def compare_free(
    free: float, needed: float, comfortable: float, message: str, fix: str
) -> CheckResult:
    """Return a problem if less than `needed` is free, a warning if less than `comfortable`."""
    if free >= comfortable:
        return CheckResult("ok", message)
    return CheckResult("problem" if free < needed else "warning", message, fix)


def nearest_folder(path: Path) -> Path:
    """Return the folder itself, or the nearest parent that exists."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
