"""The GPUs that this process may use, without importing torch."""

import os
import re
import subprocess

from pretrain.config.errors import ConfigError

VARIABLE = "CUDA_VISIBLE_DEVICES"

LISTED = re.compile(r"^GPU (\d+): .*\(UUID: (\S+)\)", re.MULTILINE)  # of nvidia-smi --list-gpus


def visible_gpus() -> list[str]:
    """Return the numbers of the NVIDIA GPUs that CUDA_VISIBLE_DEVICES allows, in its order.

    CUDA ignores what follows the first entry that does not exist.

    Raises:
        ConfigError: the variable names parts of GPUs.
    """
    allowed = os.environ.get(VARIABLE)
    if allowed is not None and allowed.strip() in ("", "-1"):
        return []
    installed = dict(LISTED.findall(_listing()))
    if allowed is None:
        return list(installed)
    found: list[str] = []
    for entry in filter(None, map(str.strip, allowed.split(","))):
        if entry.startswith("MIG-"):
            raise ConfigError(
                f"{VARIABLE}={allowed}: parts of GPUs cannot be used here; name whole GPUs"
            )
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


def _listing() -> str:
    """Return the list of nvidia-smi; without a driver there is no such program, or it fails."""
    try:
        listing = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True)
    except OSError:
        return ""
    return listing.stdout
