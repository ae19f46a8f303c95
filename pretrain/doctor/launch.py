"""What starts the ranks of a run, and whether these can talk to each other."""

import shutil
import socket
import sys
from pathlib import Path

from pretrain.doctor.finding import CheckResult, Surroundings, size
from pretrain.doctor.ranks import try_ranks

LAUNCHERS = ("torchrun", "deepspeed")

# Set by a launcher for its children. Left over in a shell they make a lone process wait for others.
SET_BY_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")

# What a failing rank says -> what helps.
FIXES = {
    "Unable to find address for": "GLOO_SOCKET_IFNAME names no interface that has an address: "
    "unset it, or take one of: ip -br address",
    "Unable to resolve hostname": "add this machine's name to /etc/hosts: 127.0.0.1 $(hostname); "
    "or export GLOO_SOCKET_IFNAME=lo",
    "unhandled system error": "export NCCL_DEBUG=INFO and try again; often /dev/shm is too small",
    "No space left on device": "make /dev/shm larger, see shared memory",
}
OTHERWISE = (
    "let a firewall pass connections of this machine to itself, and try export "
    "GLOO_SOCKET_IFNAME=lo (for NCCL: NCCL_DEBUG=INFO shows where it stops)"
)


def launchers(
    surroundings: Surroundings, *, folder: Path = Path(sys.executable).parent
) -> CheckResult:
    """Tell whether torchrun and deepspeed are those of the Python that is running."""
    found = {name: shutil.which(name, path=surroundings.search_path) for name in LAUNCHERS}
    elsewhere = [
        f"{name} is {place}"
        for name, place in found.items()
        if place is not None and Path(place).parent.resolve() != folder.resolve()
    ]
    missing = [name for name in LAUNCHERS if shutil.which(name, path=str(folder)) is None]
    if missing:
        return CheckResult(
            "problem" if surroundings.ranks > 1 else "warning",
            f"{' and '.join(missing)} not in {folder}, the environment of this Python",
            f"{sys.executable} -m torch.distributed.run starts ranks too, or install the packages "
            "again",
        )
    if elsewhere:
        return CheckResult(
            "warning",
            f"{' and '.join(elsewhere)}, which belongs to another Python than {sys.executable}",
            f"export PATH={folder}:$PATH",
        )
    return CheckResult("ok", f"torchrun and deepspeed in {folder}")


def ssh(surroundings: Surroundings) -> CheckResult:
    """Tell whether several machines can be used: the deepspeed launcher reaches them by ssh."""
    place = shutil.which("ssh", path=surroundings.search_path)
    if place is None:
        return CheckResult("ok", "none: --hostfile cannot be used; one machine needs no ssh")
    return CheckResult("ok", f"{place}, for --hostfile")


def launcher_variables(surroundings: Surroundings) -> CheckResult:
    """Look for what a launcher has left in the environment, and for an address that is none."""
    environment = surroundings.environment
    left = [f"{name}={environment[name]}" for name in SET_BY_LAUNCHERS if name in environment]
    if left:
        return CheckResult(
            "problem",
            f"{', '.join(left)}: a run that is started without a launcher would wait for others",
            f"unset {' '.join(name for name in SET_BY_LAUNCHERS if name in environment)}",
        )
    address = environment.get("MASTER_ADDR")
    if address is None:
        return CheckResult("ok", "none is set")
    try:
        socket.getaddrinfo(address, None)
    except OSError as error:
        return CheckResult(
            "problem",
            f"MASTER_ADDR={address} is the name of no machine: {error.strerror}",
            "unset MASTER_ADDR, or give the address of the first machine",
        )
    return CheckResult("ok", f"MASTER_ADDR={address} can be resolved")


def communication(surroundings: Surroundings) -> CheckResult:
    """Let processes of this machine add up numbers through gloo."""
    return _try("gloo", max(2, surroundings.ranks), surroundings)


def gpu_communication(surroundings: Surroundings) -> CheckResult:
    """Let the GPUs of this machine add up numbers through NCCL."""
    gpus = len(surroundings.accelerators.gpus)
    if gpus < 2:
        return CheckResult("ok", "fewer than two GPUs: NCCL is not used")
    return _try("nccl", gpus, surroundings)


def _try(backend: str, world_size: int, surroundings: Surroundings) -> CheckResult:
    trial = try_ranks(backend, world_size, surroundings.environment)
    if trial.complaint:
        fix = next((text for words, text in FIXES.items() if words in trial.complaint), OTHERWISE)
        return CheckResult("problem", f"{world_size} processes: {trial.complaint}", fix)
    return CheckResult(
        "ok",
        f"{world_size} processes agree on a sum; {trial.latency_seconds * 1e6:.0f} us for a "
        f"number, {size(trial.bytes_per_second)} a second in large all-reduces",
    )
