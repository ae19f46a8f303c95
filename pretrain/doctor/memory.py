"""Memory of the host, of the GPUs and of /dev/shm, against what a run needs at least."""

import os

from pretrain.doctor.check import CheckContext, CheckResult, StatVfs, compare_free
from pretrain.engine.footprint import checkpoint_bytes, rank_bytes, size
from pretrain.profiling.free_memory import free_memory_bytes

LITTLE_SHARED_MEMORY = 2**30
PROCESS_BYTES = 2**30  # Python, torch and DeepSpeed, before there is a model
MOSTLY_FREE = 0.9  # of a GPU; CUDA itself takes less than a tenth


def shared_memory(context: CheckContext, *, statvfs: StatVfs = os.statvfs) -> CheckResult:
    """Check that /dev/shm has space for NCCL; docker gives it 64 MB."""
    folder = context.root / "dev" / "shm"
    if not folder.is_dir():
        return CheckResult("warning", f"there is no {folder}", "mount -t tmpfs shm /dev/shm")
    disk = statvfs(folder)
    total, free = (blocks * disk.f_frsize for blocks in (disk.f_blocks, disk.f_bavail))
    described = f"{size(free)} free of {size(total)} in {folder}"
    if free >= LITTLE_SHARED_MEMORY:
        return CheckResult("ok", described)
    if total >= LITTLE_SHARED_MEMORY:
        fix = f"remove files that other programs left there: ls -l {folder}"
    else:
        fix = "docker run --shm-size=8g (or --ipc=host); or mount -o remount,size=8g /dev/shm"
    if len(context.accelerators.gpus) > 1:
        return CheckResult("problem", f"{described}, not enough for NCCL between GPUs", fix)
    return CheckResult("warning", f"{described}: enough for one GPU", fix)


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


def _model_bytes(context: CheckContext) -> int:
    """Return what a rank needs besides activations."""
    assert context.settings is not None and context.ds_config is not None
    return rank_bytes(context.settings, dict(context.ds_config), context.ranks)
