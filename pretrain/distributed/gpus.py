"""The GPUs that this process may use, as the driver lists them, without importing torch."""

import os
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from pretrain.config.errors import ConfigError

VARIABLE = "CUDA_VISIBLE_DEVICES"

QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,driver_version", "--format=csv,noheader")
ANSWER_SECONDS = 120  # it takes seconds, without persistence mode many; a failed GPU: for ever


class DriverGpu(NamedTuple):
    """A GPU of this machine."""

    number: str
    uuid: str
    name: str
    driver: str  # version


def ask_driver() -> tuple[DriverGpu, ...]:
    """Ask nvidia-smi for the GPUs of this machine, whatever CUDA_VISIBLE_DEVICES says.

    Without a driver, or where it fails, there are none.
    """
    try:
        answer = subprocess.run(
            QUERY, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):  # without a driver there is no such program
        return ()
    lines = [] if answer.returncode else answer.stdout.strip().splitlines()
    fields = ([field.strip() for field in line.split(",")] for line in lines)
    return tuple(DriverGpu(*each) for each in fields if len(each) == 4)


def hides_every_gpu() -> bool:
    """Return whether CUDA_VISIBLE_DEVICES asks for the CPU."""
    return os.environ.get(VARIABLE, "all").strip() in ("", "-1")


def visible_gpus(gpus: Iterable[DriverGpu] | None = None) -> list[str]:
    """Return the numbers of the NVIDIA GPUs that CUDA_VISIBLE_DEVICES allows, in its order.

    CUDA ignores what follows the first entry that does not exist. `gpus` are those of `ask_driver`;
    None asks it.

    Raises:
        ConfigError: the variable names several parts of GPUs.
    """
    if hides_every_gpu():
        return []
    allowed = os.environ.get(VARIABLE)
    installed = {gpu.number: gpu.uuid for gpu in (ask_driver() if gpus is None else gpus)}
    if allowed is None:
        return list(installed)
    entries = [entry for entry in map(str.strip, allowed.split(",")) if entry]
    if any(entry.startswith("MIG-") for entry in entries):
        if len(entries) == 1:
            return entries
        # NCCL does not connect them, and CUDA gives a process the first one only.
        raise ConfigError(f"{VARIABLE}={allowed}: name one part of a GPU, or whole GPUs")
    found: list[str] = []
    for entry in entries:
        # An abbreviated UUID is enough if no other one begins like it.
        matching = [
            number
            for number, uuid in installed.items()
            if entry == number or (entry.startswith("GPU-") and uuid.startswith(entry))
        ]
        if len(matching) != 1:
            break
        found += matching
    return found
