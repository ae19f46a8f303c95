"""Limits of the machine, or of the container around it: memory, cores, open files."""

import os
import resource
from collections.abc import Callable
from pathlib import Path

from pretrain.config.ds_config import zero_stage
from pretrain.doctor.finding import CheckResult, StatVfs, Surroundings, size
from pretrain.doctor.storage import checkpoint_bytes
from pretrain.model.cost import parameters_by_group
from pretrain.train.summary import optimizer_state_bytes

LITTLE_SHARED_MEMORY = 2**30
PROCESS_BYTES = 2**30  # Python, torch and DeepSpeed, before there is a model
ENOUGH_OPEN_FILES = 1024
UNLIMITED = 2**60  # cgroup v1 writes "no limit" as a number near 2^63


def shared_memory(surroundings: Surroundings, *, statvfs: StatVfs = os.statvfs) -> CheckResult:
    """Tell whether /dev/shm has room for loader workers and NCCL; docker gives it 64 MB."""
    folder = surroundings.root / "dev" / "shm"
    if not folder.is_dir():
        return CheckResult("warning", f"there is no {folder}", "mount -t tmpfs shm /dev/shm")
    disk = statvfs(folder)
    total, free = (blocks * disk.f_frsize for blocks in (disk.f_blocks, disk.f_bavail))
    described = f"{size(free)} free of {size(total)} in {folder}"
    if free >= LITTLE_SHARED_MEMORY:
        return CheckResult("ok", described)
    settings = surroundings.settings
    has_workers = settings is not None and settings.data.loader_workers > 0
    needs = ["data.loader_workers"] * has_workers
    needs += ["NCCL between GPUs"] * (len(surroundings.accelerators.gpus) > 1)
    if total >= LITTLE_SHARED_MEMORY:
        fix = f"remove what other programs left there: ls -l {folder}"
    else:
        fix = "docker run --shm-size=8g (or --ipc=host); or mount -o remount,size=8g /dev/shm"
    if needs:
        return CheckResult("problem", f"{described}, too little for {' and '.join(needs)}", fix)
    return CheckResult("warning", f"{described}: enough for one process without workers", fix)


def memory(surroundings: Surroundings) -> CheckResult:
    """Compare the memory that is left with what the model takes at least."""
    free = free_memory_bytes(surroundings.root)
    described = f"{size(free)} can be used"
    if surroundings.settings is None or surroundings.ds_config is None:
        return CheckResult("ok", described)
    on_cpu = surroundings.accelerators.device == "cpu"
    of_model = _model_bytes(surroundings)
    needed = surroundings.ranks * (PROCESS_BYTES + of_model * on_cpu)
    if surroundings.settings.checkpoint.background:
        needed += checkpoint_bytes(surroundings.settings)  # the copy that is being written
    described += f"; {surroundings.ranks} rank(s) take {size(needed)} and activations"
    fix = "start fewer ranks, take a smaller model, or raise the container's limit"
    if needed > free:
        return CheckResult("problem", described, fix)
    return (
        CheckResult("warning", described, fix)
        if 1.5 * needed > free
        else CheckResult("ok", described)
    )


def gpu_memory(surroundings: Surroundings) -> CheckResult:
    """Compare the memory of the smallest GPU with what the model takes at least."""
    gpus = surroundings.accelerators.gpus
    if not gpus:
        return CheckResult("ok", "no GPU")
    free = min(gpu.free_bytes for gpu in gpus)
    if surroundings.ds_config is None:
        return CheckResult("ok", f"{size(free)} are free")
    needed = _model_bytes(surroundings)
    described = f"{size(free)} are free; weights, gradients and optimizer state take "
    described += f"{size(needed)}, and activations come on top"
    fix = "take a smaller --batch.micro_sequences, --engine.recompute_blocks true, or ZeRO-3 "
    fix += "(--engine.ds_config zero3_bf16_autocast)"
    if needed > free:
        return CheckResult("problem", described, fix)
    return (
        CheckResult("warning", described, fix)
        if 2 * needed > free
        else CheckResult("ok", described)
    )


def open_files(
    surroundings: Surroundings,
    *,
    limits: Callable[[int], tuple[int, int]] = resource.getrlimit,
) -> CheckResult:
    """Tell how many files a process may have open."""
    soft, hard = limits(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= ENOUGH_OPEN_FILES:
        return CheckResult(
            "ok", "no limit" if soft == resource.RLIM_INFINITY else f"{soft} a process"
        )
    may_raise = hard == resource.RLIM_INFINITY or hard >= ENOUGH_OPEN_FILES
    return CheckResult(
        "warning",
        f"{soft} a process; loader workers and sockets of ranks can need more",
        f"ulimit -n {ENOUGH_OPEN_FILES}" if may_raise else "raise nofile in limits.conf, as root",
    )


def processors(surroundings: Surroundings) -> CheckResult:
    """Compare the cores that are seen, those that may be used, and the threads that are started."""
    visible = len(os.sched_getaffinity(0))
    quota = cpu_quota(surroundings.root)
    usable = visible if quota is None else max(1, min(visible, int(quota)))
    described = f"{visible} visible" + (f", a quota of {quota:g}" if quota is not None else "")
    given = surroundings.environment.get("OMP_NUM_THREADS", "")
    ranks = surroundings.ranks
    best = max(1, usable // ranks)
    fix = f"export OMP_NUM_THREADS={best}"
    if not given:
        if usable < visible or ranks > 1:
            threads = f"{ranks} rank(s) with {visible} threads each would fight for {usable}"
            return CheckResult("warning", f"{described}; {threads}", fix)
        return CheckResult("ok", f"{described}; OMP_NUM_THREADS is not set: one thread a core")
    described += f"; OMP_NUM_THREADS={given}"
    if not given.isdecimal() or int(given) * ranks > usable:
        return CheckResult("warning", f"{described} on {ranks} rank(s) does not fit {usable}", fix)
    if int(given) < best and surroundings.accelerators.device == "cpu":
        return CheckResult("warning", f"{described} leaves cores idle", fix)
    return CheckResult("ok", described)


def free_memory_bytes(root: Path) -> int:
    """Return what the kernel, and every control group around this process, have left."""
    lines = (root / "proc" / "meminfo").read_text().splitlines()
    values = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
    left = [values["MemAvailable"]]
    for folder in _control_groups(root, "memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = (_number(folder / name) for name in (limit_name, used_name))
            if limit is not None and limit < UNLIMITED:
                left.append(int(limit - (used or 0)))
    return max(0, min(left))


def cpu_quota(root: Path) -> float | None:
    """Return how many cores' time the control groups allow; None is no limit."""
    quotas = []
    for folder in _control_groups(root, "cpu"):
        both = folder / "cpu.max"
        words = both.read_text().split() if both.is_file() else []
        if len(words) == 2 and words[0] != "max":
            quotas.append(int(words[0]) / int(words[1]))
        quota, period = (_number(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota is not None and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _control_groups(root: Path, controller: str) -> list[Path]:
    """Return the folders of the groups that hold this process, of version 2 and 1, inside out."""
    base = root / "sys" / "fs" / "cgroup"
    own = root / "proc" / "self" / "cgroup"
    lines = own.read_text().splitlines() if own.is_file() else []
    found = {base: None, base / controller: None}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        top = base if not controllers else base / controller
        if not controllers or controller in controllers.split(","):
            inner = top / path.lstrip("/")
            found |= {inner: None, **{p: None for p in inner.parents if p.is_relative_to(top)}}
    return [folder for folder in found if folder.is_dir()]


def _number(file: Path) -> float | None:
    text = file.read_text().strip() if file.is_file() else "max"
    return None if text == "max" else float(text)


def _model_bytes(surroundings: Surroundings) -> int:
    """Return what a rank holds without activations: weights, gradients, optimizer state."""
    assert surroundings.settings is not None and surroundings.ds_config is not None
    ds_config, ranks = dict(surroundings.ds_config), surroundings.ranks
    parameters = parameters_by_group(surroundings.settings.model)["total"]
    is_half = any(ds_config.get(name, {}).get("enabled", False) for name in ("fp16", "bf16"))
    one = parameters * (2 if is_half else 4)
    # ZeRO-2 divides the gradients among the ranks, ZeRO-3 the weights too.
    weights, gradients = (-(-one // (ranks if zero_stage(ds_config) >= n else 1)) for n in (3, 2))
    return weights + gradients + optimizer_state_bytes(surroundings.settings, ds_config, ranks)
