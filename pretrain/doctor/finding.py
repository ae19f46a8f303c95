"""What a check is given, and what it answers."""

import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pretrain.config.settings import RunSettings

StatVfs = Callable[[Path], os.statvfs_result]
Mark = Literal["ok", "warning", "problem"]
CHECKOUT = Path(__file__).parents[2]


class CheckResult(NamedTuple):
    """The answer of a check."""

    mark: Mark  # problem: a run will fail or be wrong; warning: it may, or will be slow
    found: str
    fix: str = ""  # what to do, where possible a command


@dataclass(frozen=True)
class Gpu:
    """A GPU that torch sees."""

    name: str
    memory_bytes: int
    free_bytes: int
    capability: tuple[int, int]


@dataclass(frozen=True)
class Accelerators:
    """What there is to compute on besides the processor, and who can see it."""

    gpus: tuple[Gpu, ...] = ()
    torch_cuda: str | None = None  # the CUDA version that torch is built for
    architectures: tuple[str, ...] = ()  # of the kernels in torch, such as "sm_90"
    driver: tuple[str, ...] | None = None  # a line a GPU of nvidia-smi; None: there is no such
    driver_complaint: str = ""  # of an nvidia-smi that failed

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """Return where a run would be executed."""
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True)
class Surroundings:
    """Everything that the checks look at; a test gives them another machine."""

    environment: Mapping[str, str]
    run_folder: Path
    ranks: int = 1
    accelerators: Accelerators = Accelerators()
    root: Path = Path("/")  # of the file system with /proc, /sys and /dev
    recipe: str | None = None
    settings: RunSettings | None = None  # None: no recipe was named
    ds_config: Mapping[str, Any] | None = None  # as DeepSpeed would get it

    @property
    def search_path(self) -> str:
        """Return where commands are looked for."""
        return self.environment.get("PATH", "")

    @property
    def home(self) -> Path:
        """Return the home folder, in which the caches are."""
        return Path(self.environment.get("HOME", "/root"))


class Check(NamedTuple):
    """A check and what it is called."""

    title: str
    look: Callable[[Surroundings], CheckResult]


def examine(check: Check, surroundings: Surroundings) -> CheckResult:
    """Return the finding of a check; one that fails itself is a problem, with its error."""
    try:
        return check.look(surroundings)
    # On purpose any error: a machine that is broken in a way nobody has thought of must not hide
    # what the other checks find, and no training depends on what is caught here.
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return CheckResult(
            "problem",
            f"the check itself failed: {type(error).__name__}: {error}",
            f"look at {Path(place.filename).name}, line {place.lineno}; this may be a fault of "
            "Tupelo",
        )


def nearest_folder(path: Path) -> Path:
    """Return the folder itself, or where it would be made: the nearest one that exists."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def size(num_bytes: float) -> str:
    """Return a number of bytes as people write it."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes:.0f} bytes"
