"""GPUs that a dry run is for, read from the command line: they need not be here."""

import re

from data_prep.files.quoting import quoted
from pretrain.config.errors import ConfigError, lookup
from pretrain.profiling.hardware import DATASHEETS, HALF, Gpu

DESCRIPTION = re.compile(
    r"(?P<count>\d{1,6}) ?x ?"
    r"((?P<memory>\d{1,5})GB:(?P<rate>\d{1,5}(\.\d+)?)|(?P<name>[A-Z][\w -]+))"
)


def described_gpus(text: str) -> tuple[int, Gpu]:
    """Read a number of GPUs and which: "16 x A100-SXM4-80GB", or by GB and TFLOP/s "8 x 48GB:180".

    Raises:
        ConfigError: it is neither, or the name is unknown.
    """
    found = DESCRIPTION.fullmatch(text)
    if found is None or int(found["count"]) == 0:
        raise ConfigError(
            f"--on {quoted(text)}: give a number of GPUs and their name, such as "
            "16xA100-SXM4-80GB, or their GB of memory and dense bf16 TFLOP/s, such as 8x48GB:180"
        )
    count = int(found["count"])
    if found["memory"] is None:
        return count, lookup(DATASHEETS, found["name"], setting="--on")
    return count, Gpu(1e12 * float(found["rate"]), HALF, int(found["memory"]) * 10**9)
