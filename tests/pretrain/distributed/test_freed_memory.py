import os
import subprocess
import sys

import pytest

# Page faults of blocks of 64 MiB that are freed and requested again: 16,384 for each block that
# the kernel hands out anew.
FAULTS = """
import resource
import torch
from pretrain.distributed.freed_memory import keep_freed_memory

keep_freed_memory()
def use():
    for _ in range(10):
        torch.ones(1 << 24)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(("variable", "keeps"), [({}, True), ({"MALLOC_ARENA_MAX": "1"}, False)])
def test_freed_memory_is_used_again_unless_the_environment_decides(variable, keeps):
    environment = {name: value for name, value in os.environ.items() if "MALLOC_" not in name}
    run = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=environment | variable,
        capture_output=True,
        check=True,
        text=True,
    )
    assert (int(run.stdout) < 1000) == keeps
