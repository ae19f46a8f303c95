"""Memory of the host, of the GPUs and of /dev/shm, against what a run needs at least."""

import os
from pathlib import Path

from pretrain.config.ds_config import zero_stage
from pretrain.doctor.check import CheckContext, CheckResult, StatVfs, compare_free
from pretrain.model.cost import parameters_by_group
from pretrain.train.footprint import checkpoint_bytes, optimizer_state_bytes, size

LITTLE_SHARED_MEMORY = 2**30
PROCESS_BYTES = 2**30  # Python, torch and DeepSpeed, before there is a model
MOSTLY_FREE = 0.9  # of a GPU; CUDA itself takes less than a tenth
UNLIMITED = 2**60  # cgroup v1 writes "no limit" as a number near 2^63


def shared_memory(context: CheckContext, *, statvfs: StatVfs = os.statvfs) -> CheckResult:
    """Check that /dev/shm has space for loader workers and NCCL; docker gives it 64 MB."""
    folder = context.root / "dev" / "shm"
    if not folder.is_dir():
        return CheckResult("warning", f"there is no {folder}", "mount -t tmpfs shm /dev/shm")
    disk = statvfs(folder)
    total, free = (blocks * disk.f_frsize for blocks in (disk.f_blocks, disk.f_bavail))
    described = f"{size(free)} free of {size(total)} in {folder}"
    if free >= LITTLE_SHARED_MEMORY:
        return CheckResult("ok", described)
    settings = context.settings
    has_workers = settings is not None and settings.data.loader_workers > 0
    needs = ["data.loader_workers"] * has_workers
    needs += ["NCCL between GPUs"] * (len(context.accelerators.gpus) > 1)
    if total >= LITTLE_SHARED_MEMORY:
        fix = f"remove files that other programs left there: ls -l {folder}"
    else:
        fix = "docker run --shm-size=8g (or --ipc=host); or mount -o remount,size=8g /dev/shm"
    if needs:
        return CheckResult("problem", f"{described}, not enough for {' and '.join(needs)}", fix)
    return CheckResult("warning", f"{described}: enough for one process without workers", fix)


def memory(context: CheckContext) -> CheckResult:
    """Compare the available memory with what the ranks need without activations."""
    free = free_memory_bytes(context.root)
    described = f"{size(free)} are available"
    if context.settings is None or context.ds_config is None:
        return CheckResult("ok", described)
    on_cpu = context.accelerators.device == "cpu"
    of_model = _model_bytes(context)
    needed = context.ranks * (PROCESS_BYTES + of_model * on_cpu)
    if context.settings.checkpoint.background:
        needed += checkpoint_bytes(context.settings)  # the copy that is being written
    described += f"; {context.ranks} rank(s) take {size(needed)}, and activations come on top"
    fix = "start fewer ranks, choose a smaller model, or raise the container's limit"
    return compare_free(free, needed, 1.5 * needed, described, fix)


def gpu_memory(context: CheckContext) -> CheckResult:
    """Compare the GPU with the least free memory with what a rank needs without activations."""
    gpus = context.accelerators.gpus
    if not gpus:
        return CheckResult("ok", "no GPU")
    free = min(gpu.free_bytes for gpu in gpus)
    fullest = [n for n, gpu in enumerate(gpus) if gpu.free_bytes < MOSTLY_FREE * gpu.memory_bytes]
    if context.ds_config is None and fullest:
        return CheckResult(
            "warning",
            f"{size(free)} are free: other processes use GPU {', '.join(map(str, fullest))}",
            "nvidia-smi shows them; CUDA_VISIBLE_DEVICES chooses other GPUs",
        )
    if context.ds_config is None:
        return CheckResult("ok", f"{size(free)} are free")
    needed = _model_bytes(context)
    described = f"{size(free)} are free; weights, gradients and optimizer state take "
    described += f"{size(needed)}, and activations come on top"
    fix = "end other processes (nvidia-smi shows them), lower --batch.micro_sequences, set "
    fix += "--engine.recompute_blocks true, or use ZeRO-3 (--engine.ds_config zero3_bf16_autocast)"
    return compare_free(free, needed, 2 * needed, described, fix)


def free_memory_bytes(root: Path) -> int:
    """Return the least of what the kernel and the control groups of this process leave free."""
    lines = (root / "proc" / "meminfo").read_text().splitlines()
    values = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
    left = [values["MemAvailable"]]
    for folder in _memory_groups(root):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = (_number(folder / name) for name in (limit_name, used_name))
            if limit is not None and limit < UNLIMITED:
                left.append(int(limit - (used or 0)))
    return max(0, min(left))


def _memory_groups(root: Path) -> list[Path]:
    """Return the folders of the control groups of this process, of versions 1 and 2."""
    base = root / "sys" / "fs" / "cgroup"
    own = root / "proc" / "self" / "cgroup"
    lines = own.read_text().splitlines() if own.is_file() else []
    found = {base: None, base / "memory": None}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        top = base if not controllers else base / "memory"
        if not controllers or "memory" in controllers.split(","):
            inner = top / path.lstrip("/")
            found |= {inner: None, **{p: None for p in inner.parents if p.is_relative_to(top)}}
    return [folder for folder in found if folder.is_dir()]


def _number(file: Path) -> float | None:
    text = file.read_text().strip() if file.is_file() else "max"
    return None if text == "max" else float(text)


def _model_bytes(context: CheckContext) -> int:
    """Return what a rank needs for weights, gradients and optimizer state."""
    assert context.settings is not None and context.ds_config is not None
    ds_config, ranks = dict(context.ds_config), context.ranks
    settings = context.settings
    parameters = parameters_by_group(settings.model, settings.objective)["total"]
    is_half = any(ds_config.get(name, {}).get("enabled", False) for name in ("fp16", "bf16"))
    one = parameters * (2 if is_half else 4)
    # ZeRO-2 divides the gradients among the ranks, ZeRO-3 the weights too.
    weights, gradients = (-(-one // (ranks if zero_stage(ds_config) >= n else 1)) for n in (3, 2))
    return weights + gradients + optimizer_state_bytes(settings, ds_config, ranks)
